#include <gateway/cli/lease_stream.hpp>

#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/job_control.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/percent_encoding.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/terminal.hpp>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include <unistd.h>

#include <algorithm>

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
constexpr milliseconds cancel_timeout{1'000};

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

boot_clock::time_point compute_answered_at(const json::object& lease, boot_clock::time_point sent_at) {
    // validity_ms and hold_left_ms count from the moment when the gateway sent the response. That was no earlier than
    // the request was sent, plus the served_ms that the gateway took; how long the response travelled is not known.
    const milliseconds served = std::max(get_duration(lease, "served_ms").value_or(milliseconds{0}), milliseconds{0});
    const auto elapsed = boot_clock::now() - sent_at;
    return sent_at + std::min<boot_clock::duration>(served, elapsed);
}

boot_clock::time_point compute_valid_until(const json::object& lease, boot_clock::time_point sent_at) {
    return compute_answered_at(lease, sent_at) + get_duration(lease, "validity_ms").value_or(milliseconds{0});
}

http_request make_lease_request(const std::string& lease_id) {
    http_request request;
    request.target = "/v1/leases/" + runtime::percent_encode(lease_id);
    return request;
}

lease_stream::confirmation read_confirmation(const http_response& response, boot_clock::time_point sent_at) {
    lease_stream::confirmation out;
    out.lost = response.status == 410;
    if (response.is_success()) out.valid_until = compute_valid_until(parse_object(response.body), sent_at);
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

std::string join_names(const std::vector<std::string>& names) {
    std::string out;
    for (const auto& name : names)
        out += (out.empty() ? "" : ",") + name;
    return out;
}

lease_stream::lease_stream(asio::io_context& io, const client& gateway, const lock_options& options)
    : io_(io),
      gateway_(gateway),
      options_(options),
      idempotency_key_("lock-" + runtime::random_hex128()),
      waiting_(options.persistent) {}

milliseconds lease_stream::time_left() const {
    if (!options_.wait) return milliseconds::max();
    const auto left = std::chrono::ceil<milliseconds>(started_at_ + *options_.wait - boot_clock::now());
    return std::max(left, milliseconds{0});
}

json::object lease_stream::make_body() const {
    json::object body;
    if (options_.resources.size() == 1) {
        body["resource"] = options_.resources.front();
    } else {
        body["resources"] = json::value_from(options_.resources);
    }
    if (!options_.owner.empty()) body["owner"] = options_.owner;
    return body;
}

http_request lease_stream::make_request(milliseconds wait) const {
    json::object body = make_body();
    body["wait_ms"] = wait.count();
    if (options_.every) body["fence_on_grant"] = true;
    if (options_.ttl) body["ttl_ms"] = options_.ttl->count();
    if (options_.max_hold) body["max_hold_ms"] = options_.max_hold->count();
    http_request out;
    out.method = "POST";
    out.target = "/v1/leases";
    out.accept = "text/event-stream";
    gateway_.add_caller(out);
    out.idempotency_key = idempotency_key_;
    out.body = json::serialize(body);
    return out;
}

void lease_stream::report_once(const std::string& message) {
    if (!std::exchange(reported_, true)) print_message(options_, message);
}

asio::awaitable<std::optional<lock_refusal>> lease_stream::open() {
    milliseconds wait{0};
    milliseconds retry_pause = retry_pause_first;
    for (;;) {
        connection_ = std::make_unique<http_exchange>(io_, gateway_.address(), gateway_.identity());
        sent_at_ = boot_clock::now();
        sent_wait_ = wait;
        http_response response;
        lock_refusal refusal{exit_unavailable, {}};
        http_request request = make_request(wait);
        try {
            response = co_await connection_->send(std::move(request), wait + gateway_.timeout());
        } catch (const gateway_unreachable& e) {
            if (!waiting_) throw;
            refusal.text = e.what();
        }
        if (response.is_event_stream()) co_return std::nullopt;

        const bool held = response.status == 423;
        refusal.conflict = held;
        // 410: granted, but expired before the gateway could respond.
        const bool temporary = response.status == 410 ||
                               (waiting_ && (response.status == 0 || response.status == 429 || response.status >= 500));
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
                              "waiting for " + join_names(options_.resources) + (holder.empty() ? "" : ", " + holder));
            // A request that was answered early must not be repeated without a pause.
            const bool waited = boot_clock::now() - sent_at_ >= wait / 2;
            wait = std::min(get_duration(problem, "max_wait_ms").value_or(milliseconds{0}), time_left());
            if (wait <= milliseconds{0} || !waited) pause = poll_pause;
            retry_pause = retry_pause_first;
        } else if (temporary) {
            report_once(refusal.text + "\n  still waiting for " + join_names(options_.resources) + "; trying again");
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

boot_clock::time_point lease_stream::answered_at(const json::object& lease) const {
    return compute_answered_at(lease, sent_at_);
}

boot_clock::time_point lease_stream::valid_until(const json::object& lease) const {
    return compute_valid_until(lease, sent_at_);
}

asio::awaitable<http_response> lease_stream::call(http_request request) const {
    http_exchange connection(io_, gateway_.address(), gateway_.identity());
    gateway_.add_caller(request);
    co_return co_await connection.send(std::move(request), gateway_.timeout());
}

asio::awaitable<std::string> lease_stream::keep(milliseconds length, std::optional<lock_refusal>& refusal) const {
    json::object body = make_body();
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

asio::awaitable<lease_stream::confirmation> lease_stream::confirm(std::string lease_id, milliseconds timeout) const {
    http_exchange connection(io_, gateway_.address(), gateway_.identity());
    http_request request = make_lease_request(lease_id);
    gateway_.add_caller(request);
    const auto sent_at = boot_clock::now();
    try {
        const http_response response = co_await connection.send(std::move(request), timeout);
        co_return read_confirmation(response, sent_at);
    } catch (const gateway_unreachable&) {
        co_return confirmation{};
    }
}

lease_stream::confirmation lease_stream::confirm_now(const std::string& lease_id) const {
    const auto sent_at = boot_clock::now();
    try {
        return read_confirmation(gateway_.call(make_lease_request(lease_id)), sent_at);
    } catch (const gateway_unreachable&) {
        return {};
    }
}

void lease_stream::cancel() const {
    http_request request = make_request(sent_wait_);
    request.target = "/v1/leases/cancel";
    request.accept = http_request().accept;
    try {
        gateway_.call(std::move(request), std::min(cancel_timeout, gateway_.timeout()));
    } catch (const gateway_unreachable&) {
    }
}

void lease_stream::release(const std::string& lease_id) const {
    http_request request = make_lease_request(lease_id);
    request.method = "DELETE";
    try {
        gateway_.call(std::move(request));
    } catch (const gateway_unreachable& e) {
        print_message(options_, "the lease may stay until its ttl: " + std::string(e.what()));
    }
}

int lease_stream::seal(const std::string& lease_id) const {
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
