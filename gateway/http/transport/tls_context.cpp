#include <gateway/http/transport/tls_context.hpp>

#include <gateway/config/pem.hpp>

#include <openssl/err.h>

#include <array>
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

}  // namespace fencegate::http
