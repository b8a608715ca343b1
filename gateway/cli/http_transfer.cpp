#include <gateway/cli/http_transfer.hpp>

#include <gateway/runtime/text.hpp>

#include <curl/curl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t response_bytes_max = 64 << 20;
/// A gateway sends a heartbeat every 10 s: a stream that is silent for longer than this is broken.
constexpr milliseconds silence_max{30'000};

/// Where systems have the certificates that they trust: Debian and Alpine, Fedora, openSUSE, others.
constexpr std::array authority_files{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                     "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

/// One request and its response. curl_easy_perform would look only once a second whether the transfer is to end: the
/// transfer runs in libcurl's multi interface, for its exact wait, which another thread can end.
class transfer {
  public:
    /// Throws std::runtime_error.
    transfer(const gateway_address& address, tls_identity identity, const http_request& request,
             const transfer_options& options);
    ~transfer();
    transfer(const transfer&) = delete;
    transfer& operator=(const transfer&) = delete;

    http_response run();

  private:
    static curl_socket_t open_socket(void* self, curlsocktype purpose, curl_sockaddr* address);
    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);

    template <typename Value>
    void set(CURLoption option, Value value) {
        const CURLcode code = curl_easy_setopt(easy_.get(), option, value);
        if (code != CURLE_OK) throw std::runtime_error(std::string("libcurl: ") + curl_easy_strerror(code));
    }
    void set_headers(const http_request& request);
    void set_tls();
    bool is_event_stream() const { return options_.handle_event && response_.is_event_stream(); }
    bool handle_body(std::string_view piece);
    void extend(milliseconds time) { deadline_ = steady_clock::now() + time; }
    [[noreturn]] void throw_error(CURLcode result) const;
    [[noreturn]] void throw_timeout() const;

    const gateway_address& address_;
    tls_identity identity_;
    const transfer_options& options_;
    const std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi_{curl_multi_init(), &curl_multi_cleanup};
    const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy_{curl_easy_init(), &curl_easy_cleanup};
    std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_{nullptr, &curl_slist_free_all};
    char error_[CURL_ERROR_SIZE] = {};
    steady_clock::time_point deadline_;
    http_response response_;
    event_reader events_;
    std::exception_ptr fault_;  ///< Thrown while the body was read.
};

transfer::transfer(const gateway_address& address, tls_identity identity, const http_request& request,
                   const transfer_options& options)
    : address_(address), identity_(std::move(identity)), options_(options) {
    if (!multi_ || !easy_) throw std::bad_alloc();
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_NOSIGNAL, 1L);
    // Otherwise the end waits for the thread that resolves a name, for as long as the name server takes.
    set(CURLOPT_QUICK_EXIT, 1L);
    set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
    if (!request.body.empty()) {
        set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
        set(CURLOPT_COPYPOSTFIELDS, request.body.c_str());
    }
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_URL, (address_.origin() + address_.base + request.target).c_str());
    set(CURLOPT_PATH_AS_IS, 1L);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    // That of gateways.
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_USERAGENT, "fencegate");
    set_headers(request);
    set(CURLOPT_HEADERFUNCTION, &on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &on_body);
    set(CURLOPT_WRITEDATA, this);
    constexpr std::int64_t timeout_max = std::numeric_limits<int>::max();
    set(CURLOPT_CONNECTTIMEOUT_MS,
        static_cast<long>(std::clamp<std::int64_t>(options_.timeout.count(), 1, timeout_max)));
    // on_header must not see the response header with which a proxy opens a tunnel.
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (address_.is_loopback()) set(CURLOPT_PROXY, "");
    // fencegate-client has no GSSAPI.
    set(CURLOPT_SOCKS5_AUTH, CURLAUTH_BASIC);
    if (address_.tls) set_tls();
}

transfer::~transfer() {
    curl_multi_remove_handle(multi_.get(), easy_.get());
}

void transfer::set_headers(const http_request& request) {
    const auto add = [this](const std::string& line) {
        curl_slist* const extended = curl_slist_append(headers_.get(), line.c_str());
        if (extended == nullptr) throw std::bad_alloc();
        [[maybe_unused]] const auto* previous = headers_.release();
        headers_.reset(extended);
    };
    add("Accept: " + request.accept);
    if (!request.api_key.empty()) add("Authorization: Bearer " + request.api_key);
    if (!request.cell.empty()) add("Fencing-Cell: " + request.cell);
    if (!request.last_event_id.empty()) add("Last-Event-ID: " + request.last_event_id);
    if (!request.idempotency_key.empty()) add("Idempotency-Key: " + request.idempotency_key);
    if (!request.body.empty()) add("Content-Type: application/json");
    set(CURLOPT_HTTPHEADER, headers_.get());
}

void transfer::set_tls() {
    set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    const auto set_text = [this](CURLoption option, std::string& text) {
        curl_blob blob{text.data(), text.size(), CURL_BLOB_NOCOPY};
        set(option, &blob);
    };
    if (!identity_.certificate.empty()) {
        set_text(CURLOPT_SSLCERT_BLOB, identity_.certificate);
        set_text(CURLOPT_SSLKEY_BLOB, identity_.key);
    }
    if (!identity_.authorities.empty()) {
        set_text(CURLOPT_CAINFO_BLOB, identity_.authorities);
        set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
        return;
    }
    // libcurl knows the file of the system for which it was built.
    const auto* const file_of_system =
        std::ranges::find_if(authority_files, [](const char* file) { return access(file, R_OK) == 0; });
    if (file_of_system != authority_files.end()) set(CURLOPT_CAINFO, *file_of_system);
    // It does not read these variables of OpenSSL.
    if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr) set(CURLOPT_CAINFO, file);
    if (const char* folder = std::getenv("SSL_CERT_DIR"); folder != nullptr) set(CURLOPT_CAPATH, folder);
}

void check(CURLMcode code) {
    if (code != CURLM_OK) throw gateway_unreachable(curl_multi_strerror(code));
}

http_response transfer::run() {
    const std::stop_callback wake(options_.stop, [this] { curl_multi_wakeup(multi_.get()); });
    extend(options_.timeout);
    check(curl_multi_add_handle(multi_.get(), easy_.get()));
    for (int running = 1;;) {
        check(curl_multi_perform(multi_.get(), &running));
        if (running == 0) break;
        const auto left = std::chrono::ceil<milliseconds>(deadline_ - steady_clock::now());
        if (left <= milliseconds{0} || options_.stop.stop_requested()) {
            if (is_event_stream()) return std::move(response_);
            throw_timeout();
        }
        constexpr milliseconds poll_max = std::chrono::hours{1};
        const int longest = static_cast<int>(std::min(left, poll_max).count());
        check(curl_multi_poll(multi_.get(), nullptr, 0, longest, nullptr));
    }
    if (fault_) std::rethrow_exception(fault_);
    int left = 0;
    const CURLMsg* const ended = curl_multi_info_read(multi_.get(), &left);
    if (ended != nullptr && ended->data.result != CURLE_OK && !is_event_stream()) throw_error(ended->data.result);
    return std::move(response_);
}

curl_socket_t transfer::open_socket(void*, curlsocktype, curl_sockaddr* address) {
    // A program that inherited the connection of a call that waits would keep its place in the queue.
    const int opened = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return opened < 0 ? CURL_SOCKET_BAD : opened;
}

std::size_t transfer::on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto& current = *static_cast<transfer*>(self);
    const std::string_view line(data, size * count);
    long status = 0;
    curl_easy_getinfo(current.easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    const bool ends_header = line == "\r\n" || line == "\n";
    const bool is_interim = status < 200;  // 100 Continue: another header follows
    if (!ends_header || is_interim) return line.size();
    const char* type = nullptr;
    curl_easy_getinfo(current.easy_.get(), CURLINFO_CONTENT_TYPE, &type);
    current.response_.status = static_cast<unsigned>(status);
    current.response_.type = type == nullptr ? "" : std::string(type, std::strcspn(type, "; "));
    if (current.is_event_stream()) current.extend(silence_max);
    return line.size();
}

std::size_t transfer::on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& current = *static_cast<transfer*>(self);
    try {
        return current.handle_body({data, size * count}) ? size * count : CURL_WRITEFUNC_ERROR;
    } catch (...) {  // an exception must not pass through libcurl
        current.fault_ = std::current_exception();
        return CURL_WRITEFUNC_ERROR;
    }
}

/// Out: whether the transfer is to go on.
bool transfer::handle_body(std::string_view piece) {
    if (is_event_stream()) {
        events_.add(piece);
        bool wanted = true;
        while (wanted) {
            const auto event = events_.next();
            if (!event) break;
            wanted = options_.handle_event(*event);
        }
        response_.last_event_id = events_.last_id();
        extend(silence_max);
        return wanted;
    }
    if (options_.handle_piece && response_.is_success()) {
        options_.handle_piece(piece);
        extend(options_.timeout);
        return true;
    }
    if (response_.body.size() + piece.size() > response_bytes_max)
        throw gateway_unreachable("the answer of " + address_.origin() + " is too long");
    response_.body += piece;
    return true;
}

void transfer::throw_error(CURLcode result) const {
    const std::string origin = address_.origin();
    const std::string text = runtime::hide_proxy(error_[0] != '\0' ? error_ : curl_easy_strerror(result));
    switch (result) {
        case CURLE_PEER_FAILED_VERIFICATION:
            throw gateway_unreachable("the certificate of " + origin + " is not trusted: " + text);
        case CURLE_SSL_CONNECT_ERROR:
            throw gateway_unreachable("no TLS connection to " + origin + ": " + text);
        case CURLE_COULDNT_CONNECT:
            throw gateway_unreachable("no answer from " + origin + ": " + text +
                                      "; --url or FENCEGATE_URL names the gateway");
        case CURLE_OPERATION_TIMEDOUT:
            throw_timeout();
        default:
            throw gateway_unreachable("no answer from " + origin + ": " + text);
    }
}

void transfer::throw_timeout() const {
    curl_off_t resolved_after = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_NAMELOOKUP_TIME_T, &resolved_after);
    throw gateway_unreachable("no answer from " + address_.origin() + ": timed out" +
                              (resolved_after > 0 ? "" : " while the host name was looked up"));
}

}  // namespace

http_response send_request(const gateway_address& address, const tls_identity& identity, const http_request& request,
                           const transfer_options& options) {
    static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (initialised != CURLE_OK) throw std::runtime_error("libcurl can't be initialised");
    return transfer(address, identity, request, options).run();
}

}  // namespace fencegate::cli
