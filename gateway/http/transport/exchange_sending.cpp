// Sending of answers: completely, counted while callers have not read them, and not after they have expired.
#include <gateway/http/transport/exchange.hpp>

#include <gateway/http/codec/gzip.hpp>
#include <gateway/http/transport/response_head.hpp>
#include <gateway/runtime/log.hpp>

#include <spdlog/fmt/fmt.h>
#include <boost/asio/post.hpp>
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

/// An answer is compressed in pieces of this size, between which other connections take turns.
constexpr std::size_t compressed_piece_bytes = 64 * 1024;

bool has_header(const response& answer, std::string_view name) {
    return std::ranges::any_of(answer.headers, [name](const auto& header) { return header.first == name; });
}

/// Returns whether an answer is compressed for the callers that ask for it, or was. A stream is not, because each of its
/// pieces has to arrive at once; nor is what has an ETag, which would have to differ.
bool is_compressible(const response& answer, std::size_t bytes_min) {
    if (has_header(answer, "Content-Encoding")) return true;
    return bytes_min > 0 && answer.body.size() >= bytes_min && has_body(answer.status) && !answer.stream &&
           !answer.expiring_body && !has_header(answer, "ETag");
}

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
            timer.expires_after(std::clamp(left / 50, acknowledgement_interval_min, acknowledgement_interval_max));
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

asio::awaitable<bool> exchange::deliver() {
    const response& answer = plan_.answer;
    const auto ended = steady_clock::now();
    // The caller may have hung up before the event that ended the wait, even if the answer came quickly.
    if (answer.undo_undelivered) connection_.peer_gone_ = connection_.peer_gone_ || stream_.peer_has_hung_up();
    keep_alive_ = keep_alive_ && connection_.may_continue();
    connection_.enter_phase(phase::writing, ended);
    count_answer();
    if (prefers_gzip_) co_await compress_answer();
    // Whether an answer has expired is known only after it was sent.
    const bool expires = answer.expiring_body.has_value();
    if (!expires) report_answer(ended - begun_);
    // HTTP/1.0 has no chunks: closing the connection ends the answer.
    if (answer.stream && http_1_0_) keep_alive_ = false;
    bool delivered = !connection_.peer_gone_;
    if (delivered) delivered = co_await respond();
    connection_.peer_gone_ = !delivered;
    connection_.answer_memory_.reset();
    if (expires) report_answer(ended - begun_);
    co_return delivered;
}

void exchange::render_head_of_answer() {
    head_additions add;
    add.request_id = request_id_;
    add.date = group_.date(connection_.phase_since_);
    add.keep_alive = keep_alive_;
    add.http_1_0 = http_1_0_;
    add.allowed_origin = allowed_origin_;
    add.varies_by_origin = varies_by_origin_;
    add.varies_by_encoding = is_compressible(plan_.answer, group_.config().gzip_min_bytes);
    render_head(head_, plan_.answer, add);
}

asio::awaitable<bool> exchange::respond() {
    response& answer = plan_.answer;
    if (answer.expiring_body) {
        std::function<void(const std::string&)> make_head = [&](const std::string& body) {
            answer.body = body;
            render_head_of_answer();
        };
        const std::string_view no_tail;
        const auto sent = co_await send_expiring(*answer.expiring_body, std::move(make_head), no_tail);
        if (sent != body_stream::outcome::expired) co_return sent == body_stream::outcome::sent;
        // The caller does not receive the lease, so only the gateway can release it.
        co_await undo();
        refuse(make_failure(errc::lease_lost, "The lease's validity was over before this answer could be sent."));
        add_rate_fields();
    }
    render_head_of_answer();
    const bool with_body = has_body(answer.status) && !head_only();
    const message_parts parts{asio::buffer(head_), with_body ? asio::buffer(answer.body) : asio::const_buffer(), {}};
    const auto sent = stream_.try_write(parts);
    if (!sent) co_return false;
    if (is_sent(parts, *sent)) co_return true;
    co_return co_await write_rest(parts, *sent);
}

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
        co_await plan_.answer.stream(out);
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

void exchange::add_rate_fields() {
    if (rate_.empty()) return;
    plan_.answer.headers.emplace_back("RateLimit-Policy", rate_.policy);
    plan_.answer.headers.emplace_back("RateLimit", rate_.state);
}

void exchange::count_answer() {
    const std::size_t bytes = plan_.answer.body.size();
    connection_.answer_memory_ = std::move(plan_.answer.memory);
    if (connection_.answer_memory_ || bytes <= uncounted_bytes_max) return;
    if (group_.reserve_answer(connection_, bytes, !has_safe_method())) return;
    refuse(answers_budget_failure(bytes));
    add_rate_fields();
}

asio::awaitable<void> exchange::compress_answer() {
    response& answer = plan_.answer;
    if (has_header(answer, "Content-Encoding") || !is_compressible(answer, group_.config().gzip_min_bytes)) co_return;
    // A caller for whose compressed copy there is no memory gets the answer as it is.
    const std::size_t needed = gzip_encoder::memory_bytes + gzip_encoder::bound(answer.body.size());
    if (!group_.memory().answers.fits(connection_.principal_, needed)) co_return;
    reserved_memory memory(group_.memory().answers, connection_.principal_);
    memory.grow(needed);
    gzip_encoder encoder;
    std::string compressed;
    compressed.reserve(gzip_encoder::bound(answer.body.size()));  // what a growing text copies is not counted
    std::string_view rest = answer.body;
    while (!rest.empty()) {
        const std::string_view piece = rest.substr(0, compressed_piece_bytes);
        rest.remove_prefix(piece.size());
        encoder.add(piece, rest.empty(), compressed);
        if (rest.empty()) break;
        co_await asio::post(stream_.socket().get_executor(), asio::use_awaitable);
        connection_.enter_phase(phase::writing, steady_clock::now());  // the caller is not the one who takes the time
    }
    if (compressed.size() >= answer.body.size()) co_return;
    answer.body = std::move(compressed);
    answer.headers.emplace_back("Content-Encoding", "gzip");
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

bool exchange::is_sent(const message_parts& parts, std::size_t accepted) const {
    return accepted == asio::buffer_size(parts) && stream_.unsent() == 0;
}

asio::awaitable<bool> exchange::write_rest(message_parts parts, std::size_t accepted) {
    const std::size_t held = asio::buffer_size(parts);  // counted in full until all of it is sent
    bool progressed = accepted > 0;
    for (;;) {
        if (progressed) connection_.enter_phase(phase::writing, steady_clock::now());
        for (asio::const_buffer& part : parts) {
            const std::size_t taken = std::min(accepted, part.size());
            part += taken;
            accepted -= taken;
        }
        if (is_sent(parts, 0)) co_return true;
        const bool required = !has_safe_method() && !streaming_;
        if (!connection_.answer_memory_ && !group_.reserve_answer(connection_, held, required)) {
            runtime::log(spdlog::level::warn,
                         "connection closed: http.answers_max_bytes is used up, and its caller has not read its whole "
                         "answer",
                         {{"client", connection_.client()}, {"request_id", request_id_}});
            connection_.close();
            co_return false;
        }
        const bool writable = co_await stream_.wait_writable();
        if (!writable) co_return false;
        const std::size_t unsent = stream_.unsent();
        const auto more = stream_.try_write(parts);
        if (!more) co_return false;
        accepted = *more;
        progressed = accepted > 0 || stream_.unsent() < unsent;
    }
}

}  // namespace fencegate::http
