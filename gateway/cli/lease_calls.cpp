#include <gateway/cli/lease_calls.hpp>

#include <gateway/cli/answers.hpp>
#include <gateway/cli/arguments.hpp>
#include <gateway/cli/job_control.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <list>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using std::chrono::milliseconds;

/// The pause between two requests when the gateway lets no request wait.
constexpr milliseconds poll_pause{1'000};
/// The pause after a failed request doubles from the first to the longest.
constexpr milliseconds retry_pause_first{500};
constexpr milliseconds retry_pause_max{15'000};
/// How long a release is repeated at the longest, and the pause between two attempts.
constexpr milliseconds release_time{5'000};
constexpr milliseconds release_pause{200};

/// How long to wait for the answer to the cancellation of a request.
constexpr milliseconds withdrawal_timeout{1'000};

/// Describes who holds the lease, as far as the gateway discloses it; empty if it does not.
std::string describe_holder(const json::object& refusal) {
    std::string out;
    if (const auto token = get_integer(refusal, "fencing_token")) {
        const std::string owner = get_text(refusal, "owner");
        const std::string principal = get_text(refusal, "principal");
        out = "held by " + (owner.empty() ? "principal " + principal : owner + " (principal " + principal + ")") +
              ", fencing token " + std::to_string(*token);
    }
    const bool occupied = refusal.contains("nodes");  // the key holds a value that is not a lease
    if (const auto left = get_duration(refusal, "remaining_ms"); left > milliseconds{0} && !occupied) {
        out += (out.empty() ? "" : ", ") + std::string("its lease ends in ") + format_duration(*left) +
               " unless it is renewed";
    }
    return out;
}

/// Reads a lease; what the gateway did not send is empty or zero.
lease_state read_lease(const json::object& lease, boot_clock::time_point sent_at) {
    lease_state out;
    out.lease_id = get_text(lease, "lease_id");
    out.resource = get_text(lease, "resource");
    out.token = get_integer(lease, "fencing_token").value_or(0);
    out.ttl = get_duration(lease, "ttl_ms").value_or(milliseconds{0});
    out.max_hold = get_duration(lease, "max_hold_ms").value_or(milliseconds{0});
    out.sent_at = sent_at;
    // validity_ms and max_hold_ms count from the moment when the gateway sent the response. That was no earlier than
    // the request was sent, plus the served_ms that the gateway took; how long the response travelled is not known.
    const milliseconds served = std::max(get_duration(lease, "served_ms").value_or(milliseconds{0}), milliseconds{0});
    const auto elapsed = boot_clock::now() - sent_at;
    out.answered_at = sent_at + std::min<boot_clock::duration>(served, elapsed);
    out.valid_until = out.answered_at + get_duration(lease, "validity_ms").value_or(milliseconds{0});
    return out;
}

http_request make_lease_request(const std::string& lease_id) {
    http_request request;
    request.target = "/v1/leases/" + runtime::percent_encode(lease_id);
    return request;
}

http_request make_renewal(const std::string& lease_id, milliseconds ttl) {
    http_request request = make_lease_request(lease_id);
    request.method = "POST";
    request.target += "/renew";
    request.body = json::serialize(json::object{{"ttl_ms", ttl.count()}});
    return request;
}

lease_calls::renewal read_renewal(const http_response& response, boot_clock::time_point sent_at) {
    using outcome = lease_calls::renewal::outcome;
    lease_calls::renewal out;
    if (response.is_success()) {
        out.lease = read_lease(parse_object(response.body), sent_at);
        if (out.lease.valid_until > sent_at) out.result = outcome::renewed;
        if (out.result == outcome::failed) out.reason = "the answer is not that of a gateway";
        return out;
    }
    out.reason = describe(response);
    if (response.status == 410) {
        out.result = outcome::lost;
        out.reason = "a majority of the nodes no longer holds it";
    }
    if (response.status == 409) out.result = outcome::exhausted;
    return out;
}

}  // namespace

void print_message(const lock_options& options, const std::string& message) {
    // With `stty tostop` the terminal would stop this process while the command has the terminal.
    const signal_block block(SIGTTOU);
    runtime::print_error(options.elect ? "elect" : "lock", message);
}

std::string make_holder_name() {
    char host[65] = {};
    gethostname(host, sizeof host - 1);
    return std::string(host) + "/" + std::to_string(getpid()) + "/" + runtime::random_hex128();
}

std::string join_names(const std::vector<std::string>& names, std::string_view separator) {
    std::string out;
    for (const auto& name : names) {
        if (!out.empty()) out += separator;
        out += name;
    }
    return out;
}

std::string wanted_names(const lock_options& options) {
    return (options.any_of ? "any of " : "") + join_names(options.resources) +
           (options.shared.empty() ? "" : " and shared " + join_names(options.shared));
}

lease_calls::lease_calls(asio::io_context& io, const client& gateway, const lock_options& options)
    : io_(io),
      gateway_(gateway),
      options_(options),
      idempotency_key_("lock-" + runtime::random_hex128()),
      waiting_(options.persistent) {}

milliseconds lease_calls::time_left() const {
    if (!options_.wait) return milliseconds::max();
    const auto left = std::chrono::ceil<milliseconds>(started_at_ + *options_.wait - boot_clock::now());
    return std::max(left, milliseconds{0});
}

json::object lease_calls::make_body() const {
    json::object body;
    if (options_.any_of) {
        body["any_of"] = json::value_from(options_.resources);
    } else if (options_.resources.size() == 1) {
        body["resource"] = options_.resources.front();
    } else {
        body["resources"] = json::value_from(options_.resources);
    }
    if (options_.is_shared) body["mode"] = "shared";
    if (!options_.shared.empty()) body["shared"] = json::value_from(options_.shared);
    if (!options_.owner.empty()) body["owner"] = options_.owner;
    return body;
}

http_request lease_calls::make_request(milliseconds wait) const {
    json::object body = make_body();
    body["wait_ms"] = wait.count();
    if (options_.every) body["fence_on_grant"] = true;
    if (options_.ttl) body["ttl_ms"] = options_.ttl->count();
    http_request out;
    out.method = "POST";
    out.target = "/v1/leases";
    out.idempotency_key = idempotency_key_;
    out.body = json::serialize(body);
    return out;
}

void lease_calls::report_once(const std::string& message) {
    if (!std::exchange(reported_, true)) print_message(options_, message);
}

asio::awaitable<std::optional<lock_refusal>> lease_calls::acquire() {
    milliseconds wait{0};
    milliseconds retry_pause = retry_pause_first;
    std::size_t tried = 0;  // gateways, with the first request
    for (;;) {
        const auto sent_at = boot_clock::now();
        http_response response;
        lock_refusal refusal{exit_unavailable, {}};
        http_request request = make_request(wait);
        transfer_options options{.timeout = wait + gateway_.timeout()};
        ++tried;
        sent_wait_ = wait;
        unanswered_ = true;
        try {
            response = co_await call_once(std::move(request), std::move(options));
            unanswered_ = false;
        } catch (const gateway_unreachable& e) {
            if (!waiting_ && tried >= gateway_.gateways()) throw;
            refusal.text = e.what();
        }
        if (response.is_success()) {
            granted_ = read_lease(parse_object(response.body), sent_at);
            if (!granted_.lease_id.empty()) co_return std::nullopt;
            co_return lock_refusal{exit_failed, "the answer of " + gateway_.address().origin() + " has no lease"};
        }
        const bool gateway_failed = response.status == 0 || response.status >= 500;
        if (gateway_failed && !waiting_ && tried < gateway_.gateways()) continue;

        const bool held = response.status == 423;
        refusal.conflict = held;
        // 410: granted, but expired before the gateway could respond.
        const bool temporary = response.status == 410 || (waiting_ && (gateway_failed || response.status == 429));
        if (response.status != 0) {
            refusal.exit_code = refusal_exit_code(response.status);
            refusal.text = describe(response);
        }
        milliseconds pause{0};
        if (held) {
            const json::object problem = parse_object(response.body);
            const std::string holder = describe_holder(problem);
            if (!holder.empty()) refusal.text += "\n  " + holder;
            if (!std::exchange(waiting_, true) && may_wait() && isatty(STDERR_FILENO) == 1)
                print_message(options_,
                              "waiting for " + wanted_names(options_) + (holder.empty() ? "" : ", " + holder));
            // A request that was answered early must not be repeated without a pause.
            const bool waited = boot_clock::now() - sent_at >= wait / 2;
            wait = std::min(get_duration(problem, "max_wait_ms").value_or(milliseconds{0}), time_left());
            if (wait <= milliseconds{0} || !waited) pause = poll_pause;
            retry_pause = retry_pause_first;
        } else if (temporary) {
            report_once(refusal.text + "\n  still waiting for " + wanted_names(options_) + "; trying again");
            pause = retry_pause;
            retry_pause = std::min(2 * retry_pause, retry_pause_max);
        }
        if ((!held && !temporary) || !may_wait()) co_return refusal;
        wait = std::min(wait, time_left());
        if (pause > milliseconds{0}) {
            asio::steady_timer timer(io_, std::min(pause, time_left()));
            co_await timer.async_wait(asio::use_awaitable);
        }
    }
}

std::function<void()> lease_calls::withdrawal() const {
    if (!unanswered_) return {};
    http_request request = make_request(sent_wait_);
    request.target = "/v1/leases/cancel";
    return [&gateway = gateway_, request = std::move(request)] {
        try {
            gateway.call(request, {.timeout = withdrawal_timeout});
        } catch (const gateway_unreachable&) {
            // A lease that was granted ends with its ttl.
        }
    };
}

asio::awaitable<lease_calls::renewal> lease_calls::renew(std::string lease_id, milliseconds ttl, milliseconds timeout) {
    const auto sent_at = boot_clock::now();
    renewal failed;
    try {
        http_request request = make_renewal(lease_id, ttl);
        transfer_options options{.timeout = timeout};
        const http_response response = co_await call_once(std::move(request), std::move(options));
        co_return read_renewal(response, sent_at);
    } catch (const gateway_unreachable& e) {
        failed.reason = e.what();
    }
    co_return failed;
}

lease_calls::renewal lease_calls::renew_now(const std::string& lease_id, milliseconds ttl) const {
    const auto sent_at = boot_clock::now();
    renewal failed;
    try {
        return read_renewal(gateway_.call(make_renewal(lease_id, ttl)), sent_at);
    } catch (const gateway_unreachable& e) {
        failed.reason = e.what();
    }
    return failed;
}

asio::awaitable<std::string> lease_calls::watch(std::string lease_id, std::function<bool()> wanted) {
    milliseconds pause = retry_pause_first;
    std::optional<std::string> reason;
    transfer_options options{.timeout = gateway_.timeout()};
    options.handle_event = [&pause, &reason](const stream_event& event) {
        pause = retry_pause_first;
        if (event.name == "lost" || event.name == "released") reason = get_text(parse_object(event.data), "reason");
        return !reason;
    };
    for (; wanted(); pause = std::min(2 * pause, retry_pause_max)) {
        const std::size_t watched_at = gateway_.gateway();
        http_request request = make_lease_request(lease_id);
        request.accept = "text/event-stream";
        try {
            const http_response response = co_await call_once(std::move(request), options);
            const bool is_refused = response.status >= 400 && response.status < 500 && response.status != 429;
            if (response.status == 410) reason = "a majority of the nodes no longer holds it";
            if (reason || is_refused) co_return reason.value_or("");
        } catch (const gateway_unreachable&) {
            // The renewals say what is wrong.
        } catch (const std::length_error&) {
            // An event that no gateway sends.
        }
        gateway_.leave_gateway(watched_at);
        asio::steady_timer timer(io_, pause);
        co_await timer.async_wait(asio::use_awaitable);
    }
    co_return std::string();
}

asio::awaitable<http_response> lease_calls::call(http_request request) {
    return run_on_thread([&gateway = gateway_, request = std::move(request)](std::stop_token stop) {
        return gateway.call(request, {.timeout = gateway.timeout(), .stop = std::move(stop)});
    });
}

asio::awaitable<http_response> lease_calls::call_once(http_request request, transfer_options options) {
    return run_on_thread([&gateway = gateway_, request = std::move(request),
                          options = std::move(options)](std::stop_token stop) mutable {
        options.stop = std::move(stop);
        return gateway.call_once(request, options);
    });
}

asio::awaitable<http_response> lease_calls::run_on_thread(std::function<http_response(std::stop_token)> call) {
    http_response response;
    std::exception_ptr failed;
    asio::steady_timer ended(io_, asio::steady_timer::time_point::max());
    const auto run = [&](std::stop_token stop) {
        try {
            response = call(std::move(stop));
        } catch (...) {
            failed = std::current_exception();
        }
        asio::post(io_, [&ended] { ended.cancel(); });
    };
    std::list<std::jthread>::iterator thread;
    try {
        const signal_block block;  // signals are for the thread of io_
        thread = threads_.emplace(threads_.end(), run);
    } catch (const std::system_error& e) {
        throw gateway_unreachable(std::string("no thread for a call: ") + e.what());
    }
    boost::system::error_code ignored;
    co_await ended.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    threads_.erase(thread);
    if (failed) std::rethrow_exception(failed);
    co_return response;
}

asio::awaitable<std::string> lease_calls::keep(milliseconds length, std::optional<lock_refusal>& refusal) {
    json::object body = make_body();
    if (options_.any_of) {
        body.erase("any_of");
        body["resource"] = granted_.resource;
    }
    body["ttl_ms"] = length.count();
    http_request request;
    request.method = "POST";
    request.target = "/v1/leases";
    request.body = json::serialize(body);
    const http_response response = co_await call(std::move(request));
    if (response.is_success()) co_return get_text(parse_object(response.body), "lease_id");
    std::string text = describe(response);
    if (const auto found = text.find("--ttl"); found != std::string::npos) text.replace(found, 5, "--at-least");
    refusal = lock_refusal{refusal_exit_code(response.status), "--at-least can't be kept: " + text};
    co_return std::string();
}

void lease_calls::release(const std::string& lease_id, boot_clock::time_point valid_until) const {
    http_request request = make_lease_request(lease_id);
    request.method = "DELETE";
    const auto until = std::min(valid_until, boot_clock::now() + release_time);
    for (;;) {
        std::string fault;
        try {
            const http_response response = gateway_.call(request);
            if (response.status < 500) return;
            fault = describe(response);
        } catch (const gateway_unreachable& e) {
            fault = e.what();
        }
        if (boot_clock::now() + release_pause >= until)
            return print_message(options_, "the lease may stay until its ttl: " + fault);
        std::this_thread::sleep_for(release_pause);
    }
}

void release_orphaned_lease(const client& gateway, const std::string& lease_id) {
    http_request request = make_lease_request(lease_id);
    request.method = "DELETE";
    try {
        gateway.call(std::move(request));
    } catch (const std::exception&) {
        // Nobody is left who could read a message.
    }
}

int lease_calls::seal(const std::string& lease_id) const {
    http_request request = make_lease_request(lease_id);
    request.method = "DELETE";
    request.target += "?seal=true";
    try {
        const http_response response = gateway_.call(std::move(request));
        if (response.is_success()) return exit_ok;
        print_message(options_, "not sealed: " + describe(response));
        if (response.status == 410) return exit_lease_lost;
    } catch (const gateway_unreachable& e) {
        print_message(options_, "not sealed: " + std::string(e.what()));
    }
    return exit_unavailable;
}

}  // namespace fencegate::cli
