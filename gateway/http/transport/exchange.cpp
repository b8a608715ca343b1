// What becomes of a request: reading and planning it, its handler, and what is undone. exchange_sending.cpp sends the answer.
#include <gateway/http/transport/exchange.hpp>

#include <gateway/http/codec/accept.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/runtime/log.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <utility>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

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

}  // namespace

exchange::exchange(connection& owner)
    : connection_(owner),
      stream_(owner.stream_),
      group_(*owner.group_),
      parser_(std::make_unique<request_parser>(owner.group_->config())) {}

exchange::~exchange() {
    connection_.principal_.clear();
    connection_.answer_memory_.reset();
}

// --- reading

exchange::progress exchange::parse() {
    boost::system::error_code ec;
    parser_->read(connection_.buffer_, ec);
    if (ec) {
        refuse_input(make_parse_failure(*parser_, ec, group_.config()));
        return progress::refused;
    }
    if (admitted_ && !reserve_body()) {
        refuse_input(bodies_budget_failure());
        return progress::refused;
    }
    if (parser_->is_done()) return progress::complete;
    if (parser_->is_header_done() && !admitted_) {
        plan_answer(steady_clock::now());
        if (plan_.target == nullptr) return progress::refused;
        admitted_ = true;
    }
    return progress::need_more;
}

void exchange::refuse_input(const failure& fault) {
    request_id_ = request_id_of(parser_->message);
    trace_id_ = trace_id_of(parser_->message.header("traceparent"));
    dispatcher::sender sender;
    sender.peer = connection_.peer();
    sender.counted = std::exchange(counted_, true);
    plan_ = group_.routes()->refuse_unreadable(fault, sender, request_id_, steady_clock::now());
    if (!sender.counted) rate_ = std::move(plan_.rate);
}

bool exchange::take_expectation() {
    return parser_->is_header_done() && parser_->expects_continue() && !std::exchange(expectation_taken_, true);
}

bool exchange::reserve_body() {
    if (!body_memory_) body_memory_.emplace(group_.memory().bodies, connection_.principal_);
    const std::size_t held = connection_.buffer_.capacity() + parser_->message.body.size();
    return held <= body_memory_->bytes() || body_memory_->try_grow(held - body_memory_->bytes());
}

void exchange::plan_answer(steady_clock::time_point now) {
    const dispatcher::sender sender{parser_->authorization,
                                    parser_->x_api_key,
                                    parser_->host,
                                    connection_.local_address_,
                                    connection_.certificate_withdrawn_ ? nullptr : stream_.certificate(),
                                    connection_.peer(),
                                    counted_};
    plan_ = group_.routes()->prepare(parser_->message, sender, now);
    if (!std::exchange(counted_, true)) rate_ = std::move(plan_.rate);
    request_id_ = parser_->message.request_id;
    trace_id_ = parser_->message.trace_id;
    connection_.principal_ = plan_.principal();
}

void exchange::note_form_of_answer() {
    verb_ = parser_->message.verb;
    http_1_0_ = parser_->http_1_0();
    const cors_rules& cors = group_.routes()->cors();
    allowed_origin_ = cors.allowed_origin(parser_->message);
    varies_by_origin_ = cors.is_enabled();
    prefers_gzip_ = prefers_gzip(parser_->message.header_list("accept-encoding"));
}

// --- answering

asio::awaitable<bool> exchange::send_refusal() {
    connection_.enter_phase(phase::writing, steady_clock::now());
    note_form_of_answer();
    add_rate_fields();
    report_answer({});
    parser_.reset();
    body_memory_.reset();
    connection_.buffer_ = {};
    co_return co_await respond();
}

asio::awaitable<bool> exchange::answer() {
    begun_ = steady_clock::now();
    received_ = lockcore::boot_clock::now();
    connection_.enter_phase(phase::handling, begun_);
    keep_alive_ = parser_->keep_alive();
    credential_withdrawn_ = false;
    note_form_of_answer();
    plan_answer(begun_);
    enter_limit_of_requests();
    if (plan_.target != nullptr) {
        // Many requests may wait for long. To save memory start_handler() releases the parser.
        auto handling = start_handler();
        co_await call_handler(std::move(handling));
        if (credential_withdrawn_) co_await refuse_withdrawn();
    }
    parser_.reset();
    body_memory_.reset();
    add_rate_fields();
    const bool delivered = co_await deliver();
    if (!delivered) {
        co_await undo();
        co_return false;
    }
    if (plan_.answer.stream && !head_only()) {
        const bool whole = co_await stream();
        keep_alive_ = keep_alive_ && whole;
    }
    co_return true;
}

void exchange::enter_limit_of_requests() {
    const auto& caller = parser_->message.caller;
    if (plan_.target == nullptr || !caller) return;
    under_way_ = limits::place(caller, limits::use::requests);
    if (under_way_) return;
    group_.limiter().count_refusal(limits::refusal::requests);
    plan_.target = nullptr;
    refuse(limits::no_place_failure(limits::use::requests));
}

awaitable_response exchange::start_handler() {
    if (!body_memory_) body_memory_.emplace(group_.memory().bodies, connection_.principal_);
    request message = std::move(parser_->message);
    message.memory = &*body_memory_;
    parser_.reset();
    try {
        return plan_.target->handle(std::move(message));
    } catch (const std::exception& e) {
        return as_awaitable(handler_failure(e));
    }
}

asio::awaitable<void> exchange::call_handler(awaitable_response handling) {
    // An earlier handler may have changed this coroutine's cancellation state.
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    co_await asio::this_coro::throw_if_cancelled(false);
    waits_long_ = plan_.target->long_waiting;
    if (waits_long_) group_.begin_waiting(connection_);
    try {
        result<response> handled = co_await std::move(handling);
        if (handled) {
            plan_.answer = std::move(*handled);
        } else {
            const auto complete = plan_.target->complete_failure;
            refuse(complete != nullptr ? complete(std::move(handled).error()) : std::move(handled).error());
        }
    } catch (const std::exception& e) {
        refuse(handler_failure(e));
    }
    group_.end_waiting(connection_);
    waits_long_ = false;
}

failure exchange::handler_failure(const std::exception& e) const {
    runtime::log(spdlog::level::err, "request failed",
                 {{"client", connection_.client()},
                  {"route", plan_.target->path},
                  {"error", e.what()},
                  {"request_id", request_id_}});
    return make_failure(errc::internal_error, "The gateway failed; the log has the details under this request_id.");
}

void exchange::refuse(const failure& f) {
    plan_.answer = problem_response(f, request_id_);
}

bool exchange::withdraw_credential(const dispatcher& routes, bool connection_withdrawn) {
    if (plan_.caller && (connection_withdrawn || !routes.accepts(*plan_.caller))) credential_withdrawn_ = true;
    return credential_withdrawn_ && (waits_long_ || streaming_);
}

asio::awaitable<void> exchange::refuse_withdrawn() {
    const response& answer = plan_.answer;
    // A cancelled handler that has done nothing answers so; a gateway that stops may have another reason.
    const bool cancelled = answer.problem == kind_of(errc::shutting_down).slug && !group_.closing();
    if (!cancelled && !answer.undo_undelivered) co_return;
    co_await undo();
    refuse(make_failure(errc::unauthenticated,
                        "The credential or client certificate of this call was withdrawn before it was answered."));
    plan_.answer.headers.emplace_back("WWW-Authenticate", challenge);
}

asio::awaitable<void> exchange::undo() {
    if (!plan_.answer.undo_undelivered) co_return;
    // The hang-up that led here must not cancel the undoing.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    try {
        co_await plan_.answer.undo_undelivered();
    } catch (const std::exception& e) {
        runtime::log(spdlog::level::err, "an answer was not delivered and could not be undone",
                     {{"client", connection_.client()}, {"error", e.what()}, {"request_id", request_id_}});
    }
}

void exchange::report_answer(steady_clock::duration time) const {
    served_request report;
    report.verb = verb_;
    report.route_path = plan_.route_path;
    report.principal = plan_.principal();
    report.request_id = request_id_;
    report.trace_id = trace_id_;
    report.status = connection_.peer_gone_ ? status_client_closed_request : plan_.answer.status;
    report.problem = plan_.answer.problem;
    report.reason = plan_.answer.problem_detail;
    report.resource = plan_.answer.problem_resource;
    report.in_history = plan_.answer.problem_in_history;
    report.address = connection_.peer();
    report.time = time;
    log_access(report, plan_.target != nullptr && plan_.target->is_readiness);
    group_.observer().on_served(report);
}

}  // namespace fencegate::http
