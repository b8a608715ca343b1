#include <gateway/http/transport/tls_channel.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/config/pem.hpp>
#include <gateway/runtime/log.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace fencegate::http {
namespace {

/// ALPN's name of the only protocol, after its length (RFC 7301).
constexpr std::string_view alpn_protocol = "\x08http/1.1";

int select_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                    unsigned int offered_size, void*) {
    unsigned char* selected = nullptr;
    const auto* const supported = reinterpret_cast<const unsigned char*>(alpn_protocol.data());
    if (SSL_select_next_proto(&selected, out_size, supported, static_cast<unsigned>(alpn_protocol.size()), offered,
                              offered_size) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = selected;
    return SSL_TLSEXT_ERR_OK;
}

failure openssl_failure(const std::string& key) {
    const char* const reason = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return make_failure(errc::internal_error, key + ": OpenSSL refuses it: " + (reason == nullptr ? "?" : reason));
}

bool use_certificates(SSL_CTX* context, const std::vector<x509_handle>& chain) {
    if (chain.empty() || SSL_CTX_use_certificate(context, chain.front().get()) != 1) return false;
    for (std::size_t i = 1; i < chain.size(); ++i) {
        if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return false;
    }
    return true;
}

/// Trusts `authorities` and names them to callers, so that they can choose a certificate.
bool verify_callers(SSL_CTX* context, const std::vector<x509_handle>& authorities, bool required) {
    for (const x509_handle& authority : authorities) {
        if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
            SSL_CTX_add_client_CA(context, authority.get()) != 1)
            return false;
    }
    const int when_missing = required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
    // An intermediate authority can be trusted without its root.
    X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | when_missing, nullptr);
    return !authorities.empty();
}

struct bio_deleter {
    void operator()(BIO* bio) const { BIO_free(bio); }
};
struct names_deleter {
    void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

/// Returns the text of a name; empty if it contains a zero byte, which other programs may take for its end.
std::string to_text(const ASN1_IA5STRING& name) {
    const auto* const data = reinterpret_cast<const char*>(ASN1_STRING_get0_data(&name));
    std::string text(data, static_cast<std::size_t>(ASN1_STRING_length(&name)));
    if (text.find('\0') != std::string::npos) text.clear();
    return text;
}

/// Returns the subject in the text of RFC 2253, characters beyond ASCII in UTF-8.
std::string subject_of(const X509& certificate) {
    const std::unique_ptr<BIO, bio_deleter> out(BIO_new(BIO_s_mem()));
    constexpr unsigned long form = XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB);
    X509_NAME_print_ex(out.get(), X509_get_subject_name(&certificate), 0, form);
    char* text = nullptr;
    const long size = BIO_get_mem_data(out.get(), &text);
    return {text, static_cast<std::size_t>(size)};
}

}  // namespace

result<std::shared_ptr<const tls_context>> tls_context::create(const tls_config& cfg) {
    ERR_clear_error();
    context_handle context(SSL_CTX_new(TLS_server_method()));
    SSL_CTX* const c = context.get();
    if (c == nullptr) return openssl_failure("http.tls");
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                               SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                               SSL_OP_IGNORE_UNEXPECTED_EOF);  // HTTP says itself where a message ends
    // An idle connection keeps no buffers. A read takes as much from the socket as there is.
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(c, 1);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(c, &select_protocol, nullptr);
    if (SSL_CTX_set_num_tickets(c, 0) != 1 ||
        SSL_CTX_set_min_proto_version(c, cfg.minimum_version == tls_version::v1_3 ? TLS1_3_VERSION : TLS1_2_VERSION) !=
            1 ||
        SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1)
        return openssl_failure("http.tls");
    if (!use_certificates(c, read_certificates(cfg.certificates))) return openssl_failure("http.tls.certificate_file");
    const pkey_handle key = read_private_key(cfg.key);
    if (!key || SSL_CTX_use_PrivateKey(c, key.get()) != 1 || SSL_CTX_check_private_key(c) != 1)
        return openssl_failure("http.tls.key_file");
    if (!cfg.client_authorities.empty() &&
        !verify_callers(c, read_certificates(cfg.client_authorities), cfg.client_certificates_required))
        return openssl_failure("http.tls.client_ca_file");
    return std::shared_ptr<const tls_context>(new tls_context(std::move(context), cfg.client_authorities));
}

tls_channel::tls_channel(tcp_socket& socket, ssl_handle ssl) : socket_(socket), ssl_(std::move(ssl)) {
    if (!ssl_) throw std::bad_alloc();
    BIO* const input = BIO_new_socket(socket_.native_handle(), BIO_NOCLOSE);
    BIO* const output = BIO_new(method());
    if (input == nullptr || output == nullptr) throw std::bad_alloc();
    BIO_set_data(output, this);
    BIO_set_init(output, 1);
    SSL_set_bio(ssl_.get(), input, output);
    SSL_set_accept_state(ssl_.get());
}

BIO_METHOD* tls_channel::method() {
    // Lives as long as the process.
    static BIO_METHOD* const made = [] {
        BIO_METHOD* const m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fencegate connection");
        if (m == nullptr) throw std::bad_alloc();
        BIO_meth_set_write_ex(m, &on_write);
        BIO_meth_set_ctrl(m, &on_control);
        return m;
    }();
    return made;
}

int tls_channel::on_write(BIO* bio, const char* data, std::size_t size, std::size_t* written) {
    if (!static_cast<tls_channel*>(BIO_get_data(bio))->take({data, size})) return 0;
    *written = size;
    return 1;
}

long tls_channel::on_control(BIO*, int command, long, void*) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

bool tls_channel::take(std::span<const char> encrypted) {
    std::size_t sent = 0;
    if (unsent() == 0) {
        boost::system::error_code ec;
        sent = socket_.write_some(boost::asio::buffer(encrypted.data(), encrypted.size()), ec);
        if (ec && ec != boost::asio::error::would_block) return false;
        if (ec) sent = 0;
    }
    if (unsent() + encrypted.size() - sent > unsent_max) return false;
    unsent_.append(encrypted.data() + sent, encrypted.size() - sent);
    return true;
}

bool tls_channel::send_unsent() {
    if (unsent() == 0) return true;
    boost::system::error_code ec;
    const std::size_t count = socket_.write_some(boost::asio::buffer(unsent_.data() + sent_, unsent()), ec);
    if (ec) return ec == boost::asio::error::would_block;
    sent_ += count;
    if (sent_ == unsent_.size()) {
        std::string().swap(unsent_);  // an assignment would keep its memory
        sent_ = 0;
    }
    return true;
}

tls_channel::progress tls_channel::classify(int returned) {
    switch (SSL_get_error(ssl_.get(), returned)) {
        case SSL_ERROR_NONE:
            return progress::done;
        case SSL_ERROR_WANT_READ:
            return progress::needs_input;
        case SSL_ERROR_ZERO_RETURN:
            return progress::ended;
        default:
            unusable_ = true;
            log_failure();
            return progress::failed;
    }
}

void tls_channel::log_failure() const {
    const char* const reason = ERR_peek_error() == 0 ? nullptr : ERR_reason_error_string(ERR_peek_error());
    boost::system::error_code ignored;
    runtime::log(spdlog::level::debug, "TLS handshake or connection failed",
                 {{"client", canonical_address(socket_.remote_endpoint(ignored).address().to_string())},
                  {"error", reason == nullptr ? "the connection ended" : reason}});
    ERR_clear_error();
}

tls_channel::progress tls_channel::accept() {
    ERR_clear_error();
    return classify(SSL_do_handshake(ssl_.get()));
}

tls_channel::progress tls_channel::read(boost::asio::mutable_buffer target, std::size_t& count) {
    ERR_clear_error();
    return classify(SSL_read_ex(ssl_.get(), target.data(), target.size(), &count));
}

bool tls_channel::write(std::span<const char> text) {
    if (unusable_) return false;
    ERR_clear_error();
    std::size_t count = 0;
    return classify(SSL_write_ex(ssl_.get(), text.data(), text.size(), &count)) == progress::done;
}

void tls_channel::close_notify() {
    if (unusable_ || SSL_is_init_finished(ssl_.get()) == 0 || (SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0)
        return;
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
}

std::optional<client_certificate> tls_channel::peer_certificate() const {
    const X509* const peer = SSL_get0_peer_certificate(ssl_.get());
    if (peer == nullptr || SSL_get_verify_result(ssl_.get()) != X509_V_OK) return std::nullopt;
    client_certificate out;
    out.subject = subject_of(*peer);
    out.valid_until = end_of_validity(*peer);
    const std::unique_ptr<GENERAL_NAMES, names_deleter> names(
        static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(peer, NID_subject_alt_name, nullptr, nullptr)));
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
        const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
        if (name->type != GEN_DNS && name->type != GEN_URI) continue;
        std::string text = to_text(*name->d.ia5);
        if (!text.empty()) (name->type == GEN_DNS ? out.dns_names : out.uris).push_back(std::move(text));
    }
    return out;
}

}  // namespace fencegate::http
