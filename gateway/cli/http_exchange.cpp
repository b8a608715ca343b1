#include <gateway/cli/http_exchange.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;

constexpr std::size_t answer_bytes_max = 64 << 20;

std::string type_of(const std::string& header) {
    return header.substr(0, header.find_first_of("; "));
}

}  // namespace

http_exchange::http_exchange(asio::io_context& io, gateway_address at, std::string authorities)
    : at_(std::move(at)), authorities_(std::move(authorities)), transfer_(curl_transfer::create(io)) {}

http_exchange::~http_exchange() {
    transfer_->close();
}

void http_exchange::prepare(const request& what, std::chrono::milliseconds within) {
    const auto add_header = [this](const std::string& line) {
        curl_slist* const longer = curl_slist_append(headers_.get(), line.c_str());
        if (longer == nullptr) throw std::bad_alloc();
        [[maybe_unused]] const auto* previous = headers_.release();
        headers_.reset(longer);
    };
    add_header("Accept: " + what.accept);
    if (!what.api_key.empty()) add_header("Authorization: Bearer " + what.api_key);
    if (!what.last_event_id.empty()) add_header("Last-Event-ID: " + what.last_event_id);
    if (!what.idempotency_key.empty()) add_header("Idempotency-Key: " + what.idempotency_key);

    curl_transfer& to = *transfer_;
    if (!what.body.empty()) {
        add_header("Content-Type: application/json");
        to.set(CURLOPT_POSTFIELDSIZE, static_cast<long>(what.body.size()));
        to.set(CURLOPT_COPYPOSTFIELDS, what.body.c_str());
    }
    to.set(CURLOPT_CUSTOMREQUEST, what.method.c_str());
    to.set(CURLOPT_URL, (at_.origin() + at_.base + what.target).c_str());
    to.set(CURLOPT_PATH_AS_IS, 1L);
    to.set(CURLOPT_PROTOCOLS_STR, "http,https");
    // A stream is ended by closing one direction of its connection, which several streams of HTTP/2 would share.
    to.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    to.set(CURLOPT_USERAGENT, "fencegate");
    to.set(CURLOPT_HTTPHEADER, headers_.get());
    to.set(CURLOPT_HEADERFUNCTION, &on_header);
    to.set(CURLOPT_HEADERDATA, this);
    to.set(CURLOPT_WRITEFUNCTION, &on_body);
    to.set(CURLOPT_WRITEDATA, this);
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    to.set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::clamp<std::int64_t>(within.count(), 1, most)));
    // Not of the answer by which a proxy opens a tunnel.
    to.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (at_.is_loopback()) to.set(CURLOPT_PROXY, "");
    if (!at_.tls) return;
    to.set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    if (!authorities_.empty()) {
        curl_blob certificates{authorities_.data(), authorities_.size(), CURL_BLOB_NOCOPY};
        to.set(CURLOPT_CAINFO_BLOB, &certificates);
        to.set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
        return;
    }
    // As every program that uses OpenSSL's own defaults; libcurl doesn't read them.
    if (const char* file = std::getenv("SSL_CERT_FILE"); file != nullptr) to.set(CURLOPT_CAINFO, file);
    if (const char* folder = std::getenv("SSL_CERT_DIR"); folder != nullptr) to.set(CURLOPT_CAPATH, folder);
}

asio::awaitable<answer> http_exchange::send(request what, std::chrono::milliseconds within) {
    const auto until = std::chrono::steady_clock::now() + within;
    prepare(what, within);
    transfer_->start();
    while (!transfer_->has_ended() && !(has_head_ && answer_.streams())) {
        const bool changed = co_await transfer_->wait(until);
        if (!changed) fail_late();
    }
    if (transfer_->has_ended() && transfer_->result() != CURLE_OK && !answer_.streams()) fail();
    answer out{answer_.status, answer_.type, std::move(answer_.body)};
    co_return out;
}

asio::awaitable<std::optional<stream_event>> http_exchange::next_event(std::chrono::milliseconds silence) {
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
        const auto until = silence.count() > 0 ? std::chrono::steady_clock::now() + silence
                                               : std::chrono::steady_clock::time_point::max();
        const bool changed = co_await transfer_->wait(until);
        if (!changed) co_return std::nullopt;
    }
}

std::size_t http_exchange::on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto& exchange = *static_cast<http_exchange*>(self);
    const std::string_view line(data, size * count);
    const unsigned status = exchange.transfer_->status();
    if ((line == "\r\n" || line == "\n") && status >= 200) {
        exchange.answer_.status = status;
        exchange.answer_.type = type_of(exchange.transfer_->content_type());
        exchange.has_head_ = true;
        exchange.transfer_->notify();
    }
    return line.size();
}

std::size_t http_exchange::on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& exchange = *static_cast<http_exchange*>(self);
    try {
        return exchange.take_body({data, size * count});
    } catch (...) {  // an exception must not pass through libcurl
        exchange.fault_ = std::current_exception();
        exchange.transfer_->notify();
        return CURL_WRITEFUNC_ERROR;
    }
}

std::size_t http_exchange::take_body(std::string_view piece) {
    if (!answer_.streams()) {
        if (answer_.body.size() + piece.size() > answer_bytes_max)
            throw unreachable("the answer of " + at_.origin() + " is too long");
        answer_.body += piece;
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

void http_exchange::fail() const {
    if (fault_) std::rethrow_exception(fault_);
    const std::string origin = at_.origin();
    const std::string text = transfer_->error_text();
    switch (transfer_->result()) {
        case CURLE_PEER_FAILED_VERIFICATION:
            throw unreachable("the certificate of " + origin + " is not to be trusted: " + text);
        case CURLE_SSL_CONNECT_ERROR:
            throw unreachable("no TLS connection to " + origin + ": " + text);
        case CURLE_OPERATION_TIMEDOUT:
            fail_late();
        default:
            throw unreachable("no answer from " + origin + ": " + text);
    }
}

void http_exchange::fail_late() const {
    throw unreachable("no answer from " + at_.origin() + ": the time is up" +
                      (transfer_->is_name_resolved() ? "" : " and the name is not resolved"));
}

}  // namespace fencegate::cli
