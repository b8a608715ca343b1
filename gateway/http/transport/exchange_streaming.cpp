// Streamed answers, and texts that are not sent after they have expired.
#include <gateway/http/transport/exchange.hpp>

#include <gateway/runtime/log.hpp>

#include <spdlog/fmt/fmt.h>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

/// A text that was rendered longer ago than this is rendered again before it is sent.
constexpr std::chrono::milliseconds rendered_recently{1};

/// How often an unacknowledged stream is looked at again; a peer that lives acknowledges within a round trip.
constexpr std::chrono::milliseconds acknowledgement_interval_min{5};
constexpr std::chrono::milliseconds acknowledgement_interval_max{500};

}  // namespace

/// Writes each piece as one chunk (RFC 9112, 7.1); with HTTP/1.0 without chunk framing.
class exchange::chunk_writer final : public body_stream {
  public:
    explicit chunk_writer(exchange& e) : exchange_(e), connection_(e.connection_), stream_(e.stream_) {}

    asio::awaitable<bool> send(std::string_view piece) override {
        if (piece.empty()) co_return !connection_.peer_gone_;
        co_return co_await write(piece);
    }
    asio::awaitable<outcome> send_expiring(const expiring_text& piece) override {
        if (connection_.peer_gone_) co_return outcome::caller_gone;
        connection_.enter_phase(phase::writing, steady_clock::now());
        std::function<void(const std::string&)> make_head = [this](const std::string& body) {
            begin_chunk(body.size());
        };
        const outcome sent = co_await exchange_.send_expiring(piece, std::move(make_head), end_of_chunk());
        finish_writing(sent != outcome::caller_gone);
        co_return sent;
    }
    std::chrono::milliseconds served() const override { return exchange_.served(); }
    asio::awaitable<bool> wait_acknowledged(lockcore::validity_time until) override {
        asio::steady_timer timer(stream_.socket().get_executor());
        while (!stream_.is_acknowledged()) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - lockcore::boot_clock::now());
            if (left.count() <= 0) co_return false;
            const auto fraction = left / 50;  // the less time is left, the more often
            timer.expires_after(std::clamp(fraction, acknowledgement_interval_min, acknowledgement_interval_max));
            boost::system::error_code cancelled;
            co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
            if (cancelled || connection_.peer_gone_) co_return true;
        }
        co_return true;
    }
    void limit_unacknowledged(std::chrono::milliseconds longest) override { stream_.limit_unacknowledged(longest); }
    asio::awaitable<bool> finish() { co_return co_await write({}); }

  private:
    void begin_chunk(std::size_t bytes) {
        exchange_.head_ = exchange_.http_1_0_ ? std::string() : fmt::format("{:x}\r\n", bytes);
    }
    std::string_view end_of_chunk() const { return exchange_.http_1_0_ ? "" : "\r\n"; }
    void finish_writing(bool delivered) {
        connection_.answer_memory_.reset();
        connection_.peer_gone_ = connection_.peer_gone_ || !delivered;
        connection_.enter_phase(phase::handling, steady_clock::now());
    }

    asio::awaitable<bool> write(std::string_view piece) {
        if (connection_.peer_gone_) co_return false;
        connection_.enter_phase(phase::writing, steady_clock::now());
        begin_chunk(piece.size());
        const message_parts parts{asio::buffer(exchange_.head_), asio::buffer(piece), asio::buffer(end_of_chunk())};
        const auto sent = stream_.try_write(parts);
        bool delivered = sent.has_value();
        if (delivered && !exchange_.is_sent(parts, *sent)) delivered = co_await exchange_.write_rest(parts, *sent);
        finish_writing(delivered);
        co_return delivered;
    }

    exchange& exchange_;
    connection& connection_;
    connection_stream& stream_;
};

asio::awaitable<bool> exchange::stream() {
    connection_.enter_phase(phase::handling, steady_clock::now());
    streaming_ = true;
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    co_await asio::this_coro::throw_if_cancelled(false);
    group_.begin_waiting(connection_);
    if (group_.closing() || credential_withdrawn_) connection_.cancel_handler_.emit(asio::cancellation_type::terminal);
    // Requests that were sent behind this one stay in memory until it ends; if they do not fit, the connection closes.
    reserved_memory pipelined(group_.memory().bodies, connection_.principal_);
    const bool serves_pipelined = pipelined.try_grow(connection_.buffer_.capacity());
    if (!serves_pipelined) connection_.buffer_ = {};
    chunk_writer out(*this);
    bool whole = true;
    try {
        co_await decision_.answer.stream(out);
    } catch (const std::exception& e) {
        if (!connection_.peer_gone_) {
            runtime::log(spdlog::level::err, "stream failed",
                         {{"client", connection_.client()}, {"error", e.what()}, {"request_id", request_id_}});
        }
        whole = false;  // no last chunk, so that the caller sees that the answer is incomplete
    }
    group_.end_waiting(connection_);
    streaming_ = false;
    whole = whole && !connection_.peer_gone_ && co_await out.finish();
    whole = whole && serves_pipelined;
    co_return whole;
}

std::chrono::milliseconds exchange::served() const {
    return std::chrono::floor<std::chrono::milliseconds>(lockcore::boot_clock::now() - received_);
}

asio::awaitable<body_stream::outcome> exchange::send_expiring(const expiring_text& text,
                                                              std::function<void(const std::string&)> make_head,
                                                              std::string_view tail) {
    using outcome = body_stream::outcome;
    for (;;) {
        const auto rendered_at = lockcore::boot_clock::now();
        const auto left = std::chrono::floor<std::chrono::milliseconds>(text.valid_until - rendered_at);
        if (left <= std::chrono::milliseconds{0}) co_return outcome::expired;
        const std::string body = text.render(left, served());
        make_head(body);
        const message_parts parts{asio::buffer(head_), head_only() ? asio::const_buffer() : asio::buffer(body),
                                  asio::buffer(tail)};
        // The process may have been stopped since. After this check the bytes are sent without further work.
        if (lockcore::boot_clock::now() - rendered_at >= rendered_recently) continue;
        const auto sent = stream_.try_write(parts);
        if (!sent) co_return outcome::caller_gone;
        if (*sent == 0) {
            const bool writable = co_await stream_.wait_writable();
            if (!writable) co_return outcome::caller_gone;
            continue;
        }
        if (is_sent(parts, *sent)) co_return outcome::sent;
        const bool whole = co_await write_rest(parts, *sent);
        co_return whole ? outcome::sent : outcome::caller_gone;
    }
}

}  // namespace fencegate::http
