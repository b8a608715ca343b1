// What becomes of a request: reading it, choosing its route, its handler and answer, and undoing. Streams and texts
// that expire are in exchange_streaming.cpp.
#include <gateway/http/transport/exchange.hpp>

#include <gateway/http/codec/gzip.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/http/transport/response_head.hpp>
#include <gateway/runtime/log.hpp>

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

/// The most lines in a second for answers from status 500 on, and for refusals.
constexpr std::uint64_t failures_logged_max = 100, refusals_logged_max = 10;

/// An answer is compressed in pieces of this size, between which other connections take turns.
constexpr std::size_t compressed_piece_bytes = 64 * 1024;

/// Logs one line for a request.
void log_access(const served_request& s, bool is_readiness) {
    // What is not allowed, and what the guard refused.
    const bool refused = s.status == 403 || s.status == 412;
    const bool informs = refused || (s.status >= 500 && !is_readiness);
    const auto level = informs ? spdlog::level::info : spdlog::level::debug;
    if (!spdlog::default_logger_raw()->should_log(level)) return;
    if (informs) {
        static runtime::line_limit failures(failures_logged_max), refusals(refusals_logged_max);
        const auto left_out = (refused ? refusals : failures).admit(std::chrono::steady_clock::now());
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

bool has_header(const response& answer, std::string_view name) {
    return std::ranges::any_of(answer.headers, [name](const auto& header) { return header.first == name; });
}

/// Returns whether an answer is compressed for the callers that ask for it, or was. A stream is not, because each of
/// its pieces has to arrive at once; nor is what has an ETag, which would have to differ.
bool is_compressible(const response& answer, std::size_t bytes_min) {
    if (has_header(answer, "Content-Encoding")) return true;
    return bytes_min > 0 && answer.body.size() >= bytes_min && has_body(answer.status) && !answer.stream &&
           !answer.expiring_body && !has_header(answer, "ETag");
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
        decide(steady_clock::now());
        if (decision_.target == nullptr) return progress::refused;
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
    decision_ = group_.routes()->refuse_unreadable(fault, sender, request_id_, steady_clock::now());
    if (!sender.counted) rate_ = std::move(decision_.rate);
}

bool exchange::take_expectation() {
    return parser_->is_header_done() && parser_->expects_continue() && !std::exchange(expectation_taken_, true);
}

bool exchange::reserve_body() {
    if (!body_memory_) body_memory_.emplace(group_.memory().bodies, connection_.principal_);
    const std::size_t used = connection_.buffer_.capacity() + parser_->message.body.size();
    return used <= body_memory_->bytes() || body_memory_->try_grow(used - body_memory_->bytes());
}

void exchange::decide(steady_clock::time_point now) {
    const dispatcher::sender sender{.authorization = parser_->authorization,
                                    .x_api_key = parser_->x_api_key,
                                    .host = parser_->host,
                                    .local_address = connection_.local_address_,
                                    .certificate = connection_.certificate_withdrawn_ ? nullptr : stream_.certificate(),
                                    .peer = connection_.peer(),
                                    .counted = counted_};
    decision_ = group_.routes()->prepare(parser_->message, sender, now);
    if (!std::exchange(counted_, true)) rate_ = std::move(decision_.rate);
    request_id_ = parser_->message.request_id;
    trace_id_ = parser_->message.trace_id;
    connection_.principal_ = decision_.principal();
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
    decide(begun_);
    enter_limit_of_requests();
    if (decision_.target != nullptr) {
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
    if (decision_.answer.stream && !head_only()) {
        const bool whole = co_await stream();
        keep_alive_ = keep_alive_ && whole;
    }
    co_return true;
}

void exchange::enter_limit_of_requests() {
    const auto& caller = parser_->message.caller;
    if (decision_.target == nullptr || !caller) return;
    under_way_ = limits::place(caller, limits::use::requests);
    if (under_way_) return;
    group_.limiter().count_refusal(limits::refusal::requests);
    decision_.target = nullptr;
    refuse(limits::no_place_failure(limits::use::requests));
}

awaitable_response exchange::start_handler() {
    if (!body_memory_) body_memory_.emplace(group_.memory().bodies, connection_.principal_);
    request message = std::move(parser_->message);
    message.memory = &*body_memory_;
    parser_.reset();
    try {
        const auto agreed = negotiate(message, *decision_.target);
        if (!agreed) return as_awaitable(agreed.error());
        return decision_.target->handle(std::move(message));
    } catch (const std::exception& e) {
        return as_awaitable(handler_failure(e));
    }
}

asio::awaitable<void> exchange::call_handler(awaitable_response handling) {
    // An earlier handler may have changed this coroutine's cancellation state.
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
    co_await asio::this_coro::throw_if_cancelled(false);
    waits_long_ = decision_.target->long_waiting;
    if (waits_long_) group_.begin_waiting(connection_);
    try {
        result<response> handled = co_await std::move(handling);
        if (handled) {
            decision_.answer = std::move(*handled);
        } else {
            const auto complete = decision_.target->complete_failure;
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
                  {"route", decision_.target->path},
                  {"error", e.what()},
                  {"request_id", request_id_}});
    return make_failure(errc::internal_error, "The gateway failed; the log has the details under this request_id.");
}

void exchange::refuse(const failure& f) {
    decision_.answer = problem_response(f, request_id_);
}

bool exchange::withdraw_credential(const dispatcher& routes, bool connection_withdrawn) {
    if (decision_.caller && (connection_withdrawn || !routes.accepts(*decision_.caller))) credential_withdrawn_ = true;
    return credential_withdrawn_ && (waits_long_ || streaming_);
}

asio::awaitable<void> exchange::refuse_withdrawn() {
    const response& answer = decision_.answer;
    // A cancelled handler that has done nothing answers so; a gateway that stops may have another reason.
    const bool cancelled = answer.problem == kind_of(errc::shutting_down).slug && !group_.closing();
    if (!cancelled && !answer.undo_undelivered) co_return;
    co_await undo();
    refuse(make_failure(errc::unauthenticated,
                        "The credential or client certificate of this call was withdrawn before it was answered."));
    decision_.answer.headers.emplace_back("WWW-Authenticate", challenge);
}

asio::awaitable<void> exchange::undo() {
    if (!decision_.answer.undo_undelivered) co_return;
    // The hang-up that led here must not cancel the undoing.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    try {
        co_await decision_.answer.undo_undelivered();
    } catch (const std::exception& e) {
        runtime::log(spdlog::level::err, "an answer was not delivered and could not be undone",
                     {{"client", connection_.client()}, {"error", e.what()}, {"request_id", request_id_}});
    }
}

void exchange::report_answer(steady_clock::duration time) const {
    served_request report;
    report.verb = verb_;
    report.route_path = decision_.route_path;
    report.principal = decision_.principal();
    if (decision_.caller) report.credential = decision_.caller->credential_name;
    report.request_id = request_id_;
    report.trace_id = trace_id_;
    report.status = connection_.peer_gone_ ? status_client_closed_request : decision_.answer.status;
    report.problem = decision_.answer.problem;
    report.reason = decision_.answer.problem_detail;
    report.resource = decision_.answer.problem_resource;
    report.in_history = decision_.answer.problem_in_history;
    report.address = connection_.peer();
    report.time = time;
    log_access(report, decision_.target != nullptr && decision_.target->is_readiness);
    group_.observer().on_served(report);
}

// --- sending the answer

asio::awaitable<bool> exchange::deliver() {
    const response& answer = decision_.answer;
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
    add.varies_by_encoding = is_compressible(decision_.answer, group_.config().gzip_min_bytes);
    render_head(head_, decision_.answer, add);
}

asio::awaitable<bool> exchange::respond() {
    response& answer = decision_.answer;
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

void exchange::add_rate_fields() {
    if (rate_.empty()) return;
    decision_.answer.headers.emplace_back("RateLimit-Policy", rate_.policy);
    decision_.answer.headers.emplace_back("RateLimit", rate_.state);
}

void exchange::count_answer() {
    const std::size_t bytes = decision_.answer.body.size();
    connection_.answer_memory_ = std::move(decision_.answer.memory);
    if (connection_.answer_memory_ || bytes <= uncounted_bytes_max) return;
    if (group_.reserve_answer(connection_, bytes, !has_safe_method())) return;
    refuse(answers_budget_failure(bytes));
    add_rate_fields();
}

asio::awaitable<void> exchange::compress_answer() {
    response& answer = decision_.answer;
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
    while (rest.size() > compressed_piece_bytes) {
        encoder.add(rest.substr(0, compressed_piece_bytes), compressed);
        rest.remove_prefix(compressed_piece_bytes);
        co_await asio::post(stream_.socket().get_executor(), asio::use_awaitable);
        connection_.enter_phase(phase::writing, steady_clock::now());  // the caller is not the one who takes the time
    }
    encoder.add_last(rest, compressed);
    if (compressed.size() >= answer.body.size()) co_return;
    answer.body = std::move(compressed);
    answer.headers.emplace_back("Content-Encoding", "gzip");
}

bool exchange::is_sent(const message_parts& parts, std::size_t accepted) const {
    return accepted == asio::buffer_size(parts) && stream_.unsent() == 0;
}

asio::awaitable<bool> exchange::write_rest(message_parts parts, std::size_t accepted) {
    const std::size_t bytes = asio::buffer_size(parts);  // counted in full until all of it is sent
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
        if (!connection_.answer_memory_ && !group_.reserve_answer(connection_, bytes, required)) {
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
