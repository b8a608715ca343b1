#include <gateway/http/transport/session.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
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

/// Sizes of one read: of a head, and of a body.
constexpr std::size_t read_size = 8 * 1024;
constexpr std::size_t read_size_in_body = 64 * 1024;
/// How long the rest of a refused request is read and dropped, because closing with unread bytes would reset the
/// connection and lose the answer: in all, between two pieces, and while the server stops; and how many bytes at
/// most. The first two are those of nginx's lingering_time and lingering_timeout.
constexpr std::chrono::seconds linger_time{30};
constexpr std::chrono::seconds linger_pause{5};
constexpr std::chrono::seconds linger_time_at_stop{2};
constexpr std::size_t linger_bytes_max = std::size_t{4} << 30U;
/// How long the handshake of TLS may take, if http.idle_timeout is not shorter.
constexpr std::chrono::seconds handshake_time{10};
/// A connection whose caller has read nothing for this long may be closed to free the memory of its answer.
constexpr std::chrono::seconds stalled_after{1};
/// A connection whose request has been arriving for this long, or whose first one has not come, may be closed for a new
/// one when all are in use.
constexpr std::chrono::seconds replaceable_after{1};
/// How long the next request of a connection waits after its address was refused: a caller that repeats its request at
/// once, on many connections, costs little time, and one that obeys Retry-After does not notice.
constexpr std::chrono::milliseconds refused_address_delay{500};

}  // namespace

session::session(tcp_socket socket, const asio::ip::address& peer, std::shared_ptr<session_group> group)
    : connection(std::move(socket), peer, std::move(group)) {
    group_->add(*this);
}

session::~session() {
    group_->remove(*this);
}

void session::start(const std::shared_ptr<session>& self) {
    auto ended = [](const std::exception_ptr& error) {
        if (!error) return;
        try {
            std::rethrow_exception(error);
        } catch (const std::exception& e) {
            spdlog::error("http connection ended by an exception: {}", e.what());
        }
    };
    const auto executor = self->stream_.socket().get_executor();
    asio::co_spawn(executor, run(self), asio::bind_cancellation_slot(self->cancel_handler_.slot(), std::move(ended)));
}

asio::awaitable<void> session::run(std::shared_ptr<session> self) {
    // Cancellation concerns the handler only, so it must not throw here. These loops read peer_gone_ and the socket.
    co_await asio::this_coro::throw_if_cancelled(false);
    session& s = *self;
    bool keep_alive = true;
    if (s.stream_.uses_tls()) keep_alive = co_await s.accept_tls();
    while (keep_alive)
        keep_alive = co_await s.serve_request();
}

asio::awaitable<bool> session::accept_tls() {
    enter_phase(phase::handshaking, steady_clock::now());
    const auto result = co_await stream_.accept_tls();
    if (result == connection_stream::handshake_result::done) {
        enter_phase(phase::reading, steady_clock::now());
        co_return true;
    }
    if (result == connection_stream::handshake_result::plain_http) {
        exchange_ = std::make_unique<exchange>(*this);
        exchange_->refuse_input(
            make_failure(errc::invalid_request, "This port is for HTTPS; the request came without TLS."));
        co_await close_after_refusal();
        co_return false;
    }
    // A reset, which closing with unread bytes causes, could overtake the alert that says why.
    co_await linger();
    close();
    co_return false;
}

asio::awaitable<bool> session::serve_request() {
    exchange_ = std::make_unique<exchange>(*this);
    const bool complete = co_await read_request();
    if (!complete) co_return false;
    const bool delivered = co_await exchange_->answer();
    if (!delivered) co_return false;
    // A stop or a reload may have come while the answer was sent.
    const bool keep_alive = exchange_->keeps_alive() && may_continue();
    const bool address_refused = exchange_->refuses_address();
    exchange_.reset();
    enter_phase(phase::reading, steady_clock::now());
    answered_ = true;
    if (!keep_alive) {
        if (has_unread_input()) co_await linger();
        close();
    } else if (address_refused) {
        co_await delay_next_request();
    } else if (buffer_.size() > 0) {
        // Pipelined requests take turns with other connections.
        co_await asio::post(stream_.socket().get_executor(), asio::use_awaitable);
    }
    const bool open = keep_alive && stream_.socket().is_open();
    co_return open;
}

asio::awaitable<bool> session::read_request() {
    using progress = exchange::progress;
    progress parsed = exchange_->parse();
    while (parsed == progress::need_more) {
        if (exchange_->take_expectation()) {
            constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";
            const bool sent = co_await stream_.write_all(asio::buffer(continue_line));
            if (!sent) co_return false;
        }
        boost::system::error_code ec;
        const bool begun = has_begun();
        if (!begun && !stream_.has_buffered_input()) {
            // An idle connection keeps no buffer.
            co_await stream_.socket().async_wait(tcp_socket::wait_read, asio::redirect_error(asio::use_awaitable, ec));
            if (ec) co_return false;
            first_bytes_arrived_ = !stream_.uses_tls();
        }
        const auto space = buffer_.prepare(exchange_->is_head_complete() ? read_size_in_body : read_size);
        const std::size_t count = co_await stream_.read_some(space, ec);
        // It may have been closed meanwhile. Nothing is executed for a caller that got a refusal.
        if (ec || !stream_.socket().is_open()) co_return false;
        buffer_.commit(count);
        parsed = exchange_->parse();
        first_bytes_arrived_ = false;
        // How long the connection was idle does not count. An empty line does not begin a request.
        if (!begun && has_begun()) enter_phase(phase::reading, steady_clock::now());
    }
    if (parsed == progress::refused) {
        co_await close_after_refusal();
        co_return false;
    }
    // What was sent behind the request may stay for as long as its answer lasts.
    if (buffer_.size() == 0 || buffer_.capacity() - buffer_.size() > read_size) buffer_.shrink_to_fit();
    co_return true;
}

asio::awaitable<void> session::close_after_refusal() {
    const bool delivered = co_await exchange_->send_refusal();
    exchange_.reset();
    if (delivered) co_await linger();
    close();
}

asio::awaitable<void> session::delay_next_request() {
    asio::steady_timer timer(stream_.socket().get_executor(), refused_address_delay);
    boost::system::error_code ignored;
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> session::linger() {
    linger_since_ = steady_clock::now();
    boost::system::error_code ec;
    stream_.finish_sending(ec);
    buffer_ = {};
    std::size_t dropped = 0;
    while (!ec && dropped < linger_bytes_max) {
        enter_phase(phase::lingering, steady_clock::now());
        co_await stream_.socket().async_wait(tcp_socket::wait_read, asio::redirect_error(asio::use_awaitable, ec));
        if (!ec) dropped += stream_.drop_input(group_->scratch(), ec);
        if (ec == asio::error::would_block) ec = {};
    }
}

void session::close() {
    answer_memory_.reset();
    stream_.close();
}

void session::close_if_stale(steady_clock::time_point now) {
    switch (phase_) {
        case phase::handshaking:
            if (now - phase_since_ > std::min<steady_clock::duration>(handshake_time, group_->config().idle_timeout))
                close();
            return;
        case phase::handling:
            return;  // bounded by the request's own deadline
        case phase::lingering:
            if (now - phase_since_ > linger_pause || now - linger_since_ > linger_time ||
                (group_->closing() && now - linger_since_ > linger_time_at_stop))
                close();
            return;
        case phase::reading:
        case phase::writing:
            if (now - phase_since_ > group_->config().idle_timeout) close();
    }
}

bool session::has_unread_input() {
    return !group_->closing() && (buffer_.size() > 0 || stream_.has_unread_input());
}

bool session::has_begun() const {
    return exchange_ && exchange_->has_begun();
}

group_member::loss session::loss_by_replacement(steady_clock::time_point now) const {
    if (!stream_.socket().is_open() || first_bytes_arrived_) return loss::answer;
    const bool slow = now - phase_since_ >= replaceable_after;
    if (phase_ == phase::lingering) return loss::slow_request;
    if (phase_ != phase::reading && phase_ != phase::handshaking) return loss::answer;
    if (is_idle()) return answered_ || slow ? loss::nothing : loss::request;
    return slow ? loss::slow_request : loss::answer;
}

bool session::is_idle() const {
    return phase_ == phase::reading && !has_begun();
}

bool session::is_stalled(steady_clock::time_point now) const {
    return phase_ == phase::writing && now - phase_since_ >= stalled_after;
}

// --- the end of what is under way: a stop, a credential that was withdrawn, a caller that hung up

void session::close_with(std::string_view refusal) {
    boost::system::error_code ignored;
    if (!refusal.empty() && !stream_.uses_tls()) {
        stream_.socket().write_some(asio::buffer(refusal), ignored);
        stream_.finish_sending(ignored);
        stream_.drop_input(group_->scratch(), ignored);  // closing with unread bytes would lose the answer
    }
    close();
}

void session::begin_shutdown() {
    if (exchange_ && exchange_->is_streaming()) return cancel_handler_.emit(asio::cancellation_type::terminal);
    if (is_idle() || phase_ == phase::handshaking) close();
}

void session::end_unaccepted(const dispatcher& routes, bool authorities_changed) {
    // Its certificate would still be verified with the earlier authorities.
    if (authorities_changed && phase_ == phase::handshaking) return close();
    const bool connection_withdrawn = authorities_changed && stream_.certificate() != nullptr;
    if (connection_withdrawn) certificate_withdrawn_ = true;
    if (exchange_ && exchange_->withdraw_credential(routes, connection_withdrawn))
        return cancel_handler_.emit(asio::cancellation_type::terminal);
    if (connection_withdrawn) begin_shutdown();
}

void session::cancel() {
    if (phase_ == phase::handling) {
        cancel_handler_.emit(asio::cancellation_type::terminal);
    } else {
        close();
    }
}

void session::on_hang_up() {
    peer_gone_ = true;
    group_->end_waiting(*this);
    cancel_handler_.emit(asio::cancellation_type::terminal);
}

}  // namespace fencegate::http
