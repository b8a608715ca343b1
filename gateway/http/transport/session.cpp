#include <gateway/http/transport/session.hpp>

#include <gateway/http/codec/accept.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/runtime/line_limit.hpp>
#include <gateway/runtime/log.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
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

/// The most lines in a second for answers from status 500 on.
constexpr std::uint64_t failures_logged_max = 100;

/// Logs one line for a request.
void log_access(const served_request& s, bool is_readiness) {
    const auto level = s.status >= 500 && !is_readiness ? spdlog::level::info : spdlog::level::debug;
    if (!spdlog::default_logger_raw()->should_log(level)) return;
    if (level == spdlog::level::info) {
        static runtime::line_limit limit(failures_logged_max);
        const auto left_out = limit.admit(std::chrono::steady_clock::now());
        if (!left_out) return;
        if (*left_out > 0) runtime::log(spdlog::level::warn, "requests were left out", {{"left_out", *left_out}});
    }
    runtime::log(level, "request",
                 {{"client", canonical_address(s.address.to_string())},
                  {"method", to_string(s.verb)},
                  {"route", s.route_path},
                  {"status", s.status},
                  {"problem", s.problem},
                  {"duration_us", std::chrono::duration_cast<std::chrono::microseconds>(s.time).count()},
                  {"request_id", s.request_id},
                  {"trace_id", s.trace_id},
                  {"principal", s.principal}});
}

asio::awaitable<response> return_response(response answer) {
    co_return answer;
}

}  // namespace

session::session(tcp_socket socket, const asio::ip::address& peer, std::shared_ptr<session_group> group)
    : group_member(peer), stream_(std::move(socket), group->tls()), group_(std::move(group)) {
    if (stream_.uses_tls()) phase_ = phase::handshaking;
    boost::system::error_code ignored;
    const auto local = stream_.socket().local_endpoint(ignored);
    if (!ignored) local_address_ = canonical_address(local.address().to_string());
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
    while (keep_alive) {
        const bool complete = co_await s.read_request();
        if (!complete) co_return;
        keep_alive = co_await s.answer_request();
    }
}

asio::awaitable<bool> session::accept_tls() {
    enter_phase(phase::handshaking, steady_clock::now());
    const auto result = co_await stream_.accept_tls();
    if (result == connection_stream::handshake_result::done) {
        enter_phase(phase::reading, steady_clock::now());
        co_return true;
    }
    if (result == connection_stream::handshake_result::plain_http) {
        parser_ = std::make_unique<request_parser>(group_->config());
        refusal_ = make_failure(errc::invalid_request, "This port is for HTTPS; the request came without TLS.");
        co_await answer_refused_input();
        co_return false;
    }
    // A reset, which closing with unread bytes causes, could overtake the alert that says why.
    co_await linger();
    close();
    co_return false;
}

asio::awaitable<bool> session::read_request() {
    parser_ = std::make_unique<request_parser>(group_->config());
    continue_sent_ = false;
    counted_ = false;
    rate_ = {};
    progress parsed = parse_buffered();
    bool head_admitted = false;
    while (parsed == progress::need_more) {
        boost::system::error_code ec;
        if (parser_->is_header_done() && !head_admitted) {
            // A request that is not allowed or has no route is answered before its body is read.
            dispatcher::plan early = plan_answer(steady_clock::now());
            if (early.target == nullptr) {
                co_await answer_refused_head(std::move(early));
                co_return false;
            }
            head_admitted = true;
            principal_ = early.principal();
        }
        if (parser_->is_header_done() && parser_->expects_continue() && !continue_sent_) {
            continue_sent_ = true;
            constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";
            const bool sent = co_await stream_.write_all(asio::buffer(continue_line));
            if (!sent) co_return false;
        }
        const bool begun = has_begun();
        if (!begun && !stream_.has_buffered_input()) {
            // An idle connection keeps no buffer.
            co_await stream_.socket().async_wait(tcp_socket::wait_read, asio::redirect_error(asio::use_awaitable, ec));
            if (ec) co_return false;
        }
        const std::size_t size_max = parser_->is_header_done() ? read_size_in_body : read_size;
        const auto space = buffer_.prepare(size_max);
        const std::size_t count = co_await stream_.read_some(space, ec);
        if (ec) co_return false;
        buffer_.commit(count);
        parsed = parse_buffered();
        // How long the connection was idle does not count. An empty line does not begin a request.
        if (!begun && has_begun()) enter_phase(phase::reading, steady_clock::now());
        if (head_admitted && parsed != progress::refused && !reserve_body()) parsed = progress::refused;
    }
    if (parsed == progress::refused) {
        co_await answer_refused_input();
        co_return false;
    }
    // What was sent behind the request may stay for as long as its answer lasts.
    if (buffer_.size() == 0 || buffer_.capacity() - buffer_.size() > read_size) buffer_.shrink_to_fit();
    co_return true;
}

asio::awaitable<bool> session::answer_request() {
    const auto begun = steady_clock::now();
    received_ = lockcore::boot_clock::now();
    enter_phase(phase::handling, begun);
    bool keep_alive = parser_->keep_alive();
    const method verb = parser_->message.verb;
    note_form_of_answer();
    dispatcher::plan plan = plan_answer(begun);
    principal_ = plan.principal();
    caller_ = plan.caller;
    credential_withdrawn_ = false;
    limits::place under_way;
    if (const auto& caller = parser_->message.caller; plan.target != nullptr && caller) {
        under_way = limits::place(caller, limits::use::requests);
        if (!under_way) refuse_request(plan);
    }
    if (plan.target != nullptr) {
        // Many requests may wait for long. To save memory start_handler() releases the parser, and call_handler()
        // stores into this coroutine's answer.
        auto handled = start_handler(*plan.target);
        co_await call_handler(*plan.target, std::move(handled), plan.answer);
        if (credential_withdrawn_) co_await refuse_withdrawn(plan.answer);
    }
    parser_.reset();
    body_memory_.reset();
    add_rate_fields(plan.answer);

    response& answer = plan.answer;
    const auto ended = steady_clock::now();
    // The caller may have hung up before the event that ended the wait, even if the answer came quickly.
    if (answer.undo_undelivered) peer_gone_ = peer_gone_ || stream_.peer_has_hung_up();
    keep_alive = keep_alive && may_continue();
    enter_phase(phase::writing, ended);
    count_answer(answer);
    if (prefers_gzip_) co_await compress_answer(answer);
    // Whether an answer has expired is known only after it was sent.
    const bool expires = answer.expiring_body.has_value();
    if (!expires) report_answer(verb, plan, ended - begun);
    // HTTP/1.0 has no chunks: closing the connection ends the answer.
    if (answer.stream && http_1_0_) keep_alive = false;
    bool delivered = !peer_gone_;
    if (delivered) delivered = co_await respond(answer, keep_alive);
    peer_gone_ = !delivered;
    answer_memory_.reset();
    if (expires) report_answer(verb, plan, ended - begun);
    if (!delivered) {
        co_await undo(std::move(answer));
        co_return false;
    }
    if (answer.stream && !head_only_) {
        const bool ended_well = co_await stream(std::move(answer));
        keep_alive = keep_alive && ended_well;
    }
    keep_alive = keep_alive && may_continue();  // a stop or a reload may have come while it was sent
    enter_phase(phase::reading, steady_clock::now());
    answered_ = true;
    caller_.reset();
    { const response sent = std::move(answer); }  // assigning to it would keep the memory of its body
    under_way = {};
    if (!keep_alive) {
        if (has_unread_input()) co_await linger();
        close();
    } else if (plan.address_refused) {
        co_await delay_next_request();
    } else if (buffer_.size() > 0) {
        // Pipelined requests take turns with other connections.
        co_await asio::post(stream_.socket().get_executor(), asio::use_awaitable);
    }
    co_return keep_alive&& stream_.socket().is_open();
}

void session::report_answer(method verb, const dispatcher::plan& answered, steady_clock::duration time) {
    served_request report;
    report.verb = verb;
    report.route_path = answered.route_path;
    report.principal = answered.principal();
    report.request_id = request_id_;
    report.trace_id = trace_id_;
    report.status = peer_gone_ ? status_client_closed_request : answered.answer.status;
    report.problem = answered.answer.problem;
    report.reason = answered.answer.problem_detail;
    report.resource = answered.answer.problem_resource;
    report.in_history = answered.answer.problem_in_history;
    report.address = peer();
    report.time = time;
    log_access(report, answered.target != nullptr && answered.target->is_readiness);
    group_->observer().on_served(report);
}

void session::note_form_of_answer() {
    const method verb = parser_->message.verb;
    http_1_0_ = parser_->http_1_0();
    head_only_ = verb == method::head;
    has_safe_method_ = verb == method::get || verb == method::head;
    const cors_rules& cors = group_->routes()->cors();
    allowed_origin_ = cors.allowed_origin(parser_->message);
    varies_by_origin_ = cors.is_enabled();
    prefers_gzip_ = prefers_gzip(parser_->message.header_list("accept-encoding"));
}

bool session::reserve_body() {
    if (!body_memory_) body_memory_.emplace(group_->memory().bodies, principal_);
    const std::size_t held = buffer_.capacity() + parser_->message.body.size();
    if (held <= body_memory_->bytes() || body_memory_->try_grow(held - body_memory_->bytes())) return true;
    refusal_ = bodies_budget_failure();
    return false;
}

void session::drop_request() {
    parser_.reset();
    buffer_ = {};
    body_memory_.reset();
}

session::progress session::parse_buffered() {
    boost::system::error_code ec;
    parser_->read(buffer_, ec);
    if (!ec) return parser_->is_done() ? progress::complete : progress::need_more;
    refusal_ = make_parse_failure(*parser_, ec, group_->config());
    return progress::refused;
}

dispatcher::plan session::plan_answer(steady_clock::time_point now) {
    const dispatcher::sender sender{parser_->authorization,
                                    parser_->x_api_key,
                                    parser_->host,
                                    local_address_,
                                    certificate_withdrawn_ ? nullptr : stream_.certificate(),
                                    peer(),
                                    counted_};
    dispatcher::plan plan = group_->routes()->prepare(parser_->message, sender, now);
    if (!std::exchange(counted_, true)) rate_ = std::move(plan.rate);
    request_id_ = parser_->message.request_id;
    trace_id_ = parser_->message.trace_id;
    return plan;
}

response session::answer_handler_failure(const route& target, const std::exception& e) {
    runtime::log(spdlog::level::err, "request failed",
                 {{"client", client()}, {"route", target.path}, {"error", e.what()}, {"request_id", request_id_}});
    return problem_response(
        make_failure(errc::internal_error, "The gateway failed; the log has the details under this request_id."),
        request_id_);
}

asio::awaitable<response> session::start_handler(const route& target) {
    if (!body_memory_) body_memory_.emplace(group_->memory().bodies, principal_);
    request message = std::move(parser_->message);
    message.memory = &*body_memory_;
    parser_.reset();
    try {
        return target.handle(std::move(message));
    } catch (const std::exception& e) {
        return return_response(answer_handler_failure(target, e));
    }
}

asio::awaitable<void> session::call_handler(const route& target, asio::awaitable<response> handled, response& answer) {
    // An earlier handler may have changed this coroutine's cancellation state.
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    co_await asio::this_coro::throw_if_cancelled(false);
    waits_long_ = target.long_waiting;
    if (waits_long_) group_->begin_waiting(*this);
    try {
        answer = co_await std::move(handled);
    } catch (const std::exception& e) {
        answer = answer_handler_failure(target, e);
    }
    group_->end_waiting(*this);
    waits_long_ = false;
}

asio::awaitable<void> session::undo(response answer) {
    if (!answer.undo_undelivered) co_return;
    // The hang-up that led here must not cancel the undoing.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    try {
        co_await answer.undo_undelivered();
    } catch (const std::exception& e) {
        runtime::log(spdlog::level::err, "an answer was not delivered and could not be undone",
                     {{"client", client()}, {"error", e.what()}, {"request_id", request_id_}});
    }
}

asio::awaitable<void> session::refuse_withdrawn(response& answer) {
    // A cancelled handler that has done nothing answers so; a gateway that stops may have another reason.
    const bool cancelled = answer.problem == kind_of(errc::shutting_down).slug && !group_->closing();
    if (!cancelled && !answer.undo_undelivered) co_return;
    co_await undo(std::move(answer));
    answer = problem_response(
        make_failure(errc::unauthenticated,
                     "The credential or client certificate of this call was withdrawn before it was answered."),
        request_id_);
    answer.headers.emplace_back("WWW-Authenticate", challenge);
}

asio::awaitable<void> session::linger() {
    linger_since_ = steady_clock::now();
    boost::system::error_code ec;
    stream_.finish_sending(ec);
    drop_request();
    std::size_t dropped = 0;
    while (!ec && dropped < linger_bytes_max) {
        enter_phase(phase::lingering, steady_clock::now());
        co_await stream_.socket().async_wait(tcp_socket::wait_read, asio::redirect_error(asio::use_awaitable, ec));
        if (!ec) dropped += stream_.drop_input(group_->scratch(), ec);
        if (ec == asio::error::would_block) ec = {};
    }
}

void session::enter_phase(phase next, steady_clock::time_point now) {
    phase_ = next;
    phase_since_ = now;
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

bool session::has_begun() const {
    return parser_ && parser_->got_some();
}

group_member::loss session::loss_by_replacement(steady_clock::time_point now) const {
    if (!stream_.socket().is_open()) return loss::answer;
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

}  // namespace fencegate::http
