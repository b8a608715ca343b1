#include <gateway/cli/http_exchange.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;

constexpr std::size_t response_bytes_max = 64 << 20;

std::string parse_media_type(const std::string& header) {
    return header.substr(0, header.find_first_of("; "));
}

}  // namespace

http_exchange::http_exchange(asio::io_context& io, gateway_address address, tls_identity identity)
    : address_(std::move(address)), identity_(std::move(identity)), transfer_(curl_transfer::create(io)) {}

http_exchange::~http_exchange() {
    transfer_->close();
}

void http_exchange::prepare(const http_request& request, std::chrono::milliseconds timeout) {
    const auto add_header = [this](const std::string& line) {
        curl_slist* const extended = curl_slist_append(headers_.get(), line.c_str());
        if (extended == nullptr) throw std::bad_alloc();
        [[maybe_unused]] const auto* previous = headers_.release();
        headers_.reset(extended);
    };
    add_header("Accept: " + request.accept);
    if (!request.api_key.empty()) add_header("Authorization: Bearer " + request.api_key);
    if (!request.cell.empty()) add_header("Fencing-Cell: " + request.cell);
    if (!request.last_event_id.empty()) add_header("Last-Event-ID: " + request.last_event_id);
    if (!request.idempotency_key.empty()) add_header("Idempotency-Key: " + request.idempotency_key);

    curl_transfer& transfer = *transfer_;
    if (!request.body.empty()) {
        add_header("Content-Type: application/json");
        transfer.set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
        transfer.set(CURLOPT_COPYPOSTFIELDS, request.body.c_str());
    }
    transfer.set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    transfer.set(CURLOPT_URL, (address_.origin() + address_.base + request.target).c_str());
    transfer.set(CURLOPT_PATH_AS_IS, 1L);
    transfer.set(CURLOPT_PROTOCOLS_STR, "http,https");
    // That of gateways.
    transfer.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    transfer.set(CURLOPT_USERAGENT, "fencegate");
    transfer.set(CURLOPT_HTTPHEADER, headers_.get());
    transfer.set(CURLOPT_HEADERFUNCTION, &on_header);
    transfer.set(CURLOPT_HEADERDATA, this);
    transfer.set(CURLOPT_WRITEFUNCTION, &on_body);
    transfer.set(CURLOPT_WRITEDATA, this);
    constexpr std::int64_t timeout_max = std::numeric_limits<int>::max();
    transfer.set(CURLOPT_CONNECTTIMEOUT_MS,
                 static_cast<long>(std::clamp<std::int64_t>(timeout.count(), 1, timeout_max)));
    // on_header must not see the response header with which a proxy opens a tunnel.
    transfer.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (address_.is_loopback()) transfer.set(CURLOPT_PROXY, "");
    if (address_.tls) prepare_tls();
}

void http_exchange::prepare_tls() {
    curl_transfer& transfer = *transfer_;
    transfer.set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    const auto set_text = [&transfer](CURLoption option, std::string& text) {
        curl_blob blob{text.data(), text.size(), CURL_BLOB_NOCOPY};
        transfer.set(option, &blob);
    };
    if (!identity_.certificate.empty()) {
        set_text(CURLOPT_SSLCERT_BLOB, identity_.certificate);
        set_text(CURLOPT_SSLKEY_BLOB, identity_.key);
    }
    if (!identity_.authorities.empty()) {
        set_text(CURLOPT_CAINFO_BLOB, identity_.authorities);
        transfer.set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
        return;
    }
    // libcurl does not read these variables of OpenSSL.
    if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr) transfer.set(CURLOPT_CAINFO, file);
    if (const char* folder = std::getenv("SSL_CERT_DIR"); folder != nullptr) transfer.set(CURLOPT_CAPATH, folder);
}

asio::awaitable<http_response> http_exchange::send(http_request request, std::chrono::milliseconds timeout) {
    auto deadline = std::chrono::steady_clock::now() + timeout;
    prepare(request, timeout);
    transfer_->start();
    while (!transfer_->has_ended() && !(has_head_ && response_.is_event_stream())) {
        const bool changed = co_await transfer_->wait(deadline);
        if (std::exchange(progressing_, false))
            deadline = std::chrono::steady_clock::now() + timeout;
        else if (!changed)
            throw_timeout();
    }
    if (transfer_->has_ended() && transfer_->result() != CURLE_OK && !response_.is_event_stream())
        throw_transfer_error();
    http_response out{response_.status, response_.type, std::move(response_.body)};
    co_return out;
}

asio::awaitable<http_response> http_exchange::download(http_request request, std::chrono::milliseconds timeout,
                                                       std::function<void(std::string_view)> handle_piece) {
    handle_piece_ = std::move(handle_piece);
    return send(std::move(request), timeout);
}

asio::awaitable<std::optional<stream_event>> http_exchange::next_event(std::chrono::milliseconds silence_max) {
    for (;;) {
        if (!events_.empty()) {
            std::optional<stream_event> event(std::move(events_.front()));
            events_.pop_front();
            co_return event;
        }
        if (fault_) std::rethrow_exception(fault_);
        if (std::exchange(paused_, false)) {
            transfer_->resume();
            continue;
        }
        if (transfer_->has_ended()) co_return std::nullopt;
        const auto deadline = silence_max.count() > 0 ? std::chrono::steady_clock::now() + silence_max
                                                      : std::chrono::steady_clock::time_point::max();
        const bool changed = co_await transfer_->wait(deadline);
        if (!changed) co_return std::nullopt;
    }
}

std::size_t http_exchange::on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto& exchange = *static_cast<http_exchange*>(self);
    const std::string_view line(data, size * count);
    const unsigned status = exchange.transfer_->status();
    if ((line == "\r\n" || line == "\n") && status >= 200) {
        exchange.response_.status = status;
        exchange.response_.type = parse_media_type(exchange.transfer_->content_type());
        exchange.has_head_ = true;
        exchange.transfer_->notify();
    }
    return line.size();
}

std::size_t http_exchange::on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& exchange = *static_cast<http_exchange*>(self);
    try {
        return exchange.append_body({data, size * count});
    } catch (...) {  // an exception must not pass through libcurl
        exchange.fault_ = std::current_exception();
        exchange.transfer_->notify();
        return CURL_WRITEFUNC_ERROR;
    }
}

std::size_t http_exchange::append_body(std::string_view piece) {
    if (handle_piece_ && response_.is_success()) {
        handle_piece_(piece);
        progressing_ = true;
        transfer_->notify();
        return piece.size();
    }
    if (!response_.is_event_stream()) {
        if (response_.body.size() + piece.size() > response_bytes_max)
            throw gateway_unreachable("the answer of " + address_.origin() + " is too long");
        response_.body += piece;
        return piece.size();
    }
    transfer_->notify();
    if (!events_.empty()) {
        paused_ = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    reader_.add(piece);
    while (auto event = reader_.next())
        events_.push_back(std::move(*event));
    return piece.size();
}

void http_exchange::throw_transfer_error() const {
    if (fault_) std::rethrow_exception(fault_);
    const std::string origin = address_.origin();
    const std::string text = transfer_->error_text();
    switch (transfer_->result()) {
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

void http_exchange::throw_timeout() const {
    throw gateway_unreachable("no answer from " + address_.origin() + ": timed out" +
                              (transfer_->is_name_resolved() ? "" : " while the host name was looked up"));
}

}  // namespace fencegate::cli
