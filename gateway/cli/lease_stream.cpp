#include <gateway/cli/lease_stream.hpp>

#include <gateway/app.hpp>
#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/runtime/percent_encoding.hpp>
#include <gateway/runtime/random.hpp>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using std::chrono::milliseconds;

/// Between two requests where the gateway lets nobody wait.
constexpr milliseconds poll_pause{1'000};
/// Between two requests that failed: doubled each time.
constexpr milliseconds retry_first{500};
constexpr milliseconds retry_most{15'000};

int exit_code_of_refusal(unsigned status) {
    if (status == 410 || status == 423 || status == 429) return exit_not_granted;
    if (status == 401 || status == 403) return exit_not_allowed;
    if (status >= 500) return exit_unavailable;
    return status == 400 ? exit_usage : exit_failed;
}

json::object parse_object(const std::string& text) {
    boost::system::error_code ec;
    const json::value parsed = json::parse(text, ec);
    const json::object* found = ec ? nullptr : parsed.if_object();
    return found == nullptr ? json::object() : *found;
}

/// Who holds it, as far as the gateway may tell us; empty if it says nothing.
std::string describe_holder(const json::object& refusal) {
    std::string out;
    if (const auto token = number(refusal, "fencing_token")) {
        const std::string owner = text(refusal, "owner");
        const std::string principal = text(refusal, "principal");
        out = "held by " + (owner.empty() ? "principal " + principal : owner + " (principal " + principal + ")") +
              ", fencing token " + std::to_string(*token);
    }
    const bool occupied = refusal.contains("nodes");  // by what is no lease
    if (const auto left = number(refusal, "remaining_ms"); left.value_or(0) > 0 && !occupied) {
        out += (out.empty() ? "" : ", ") + std::string("its lease ends in ") + format_duration(milliseconds(*left)) +
               " unless it is renewed";
    }
    return out;
}

boot_clock::time_point valid_from(const json::object& lease, boot_clock::time_point asked_at) {
    // validity_ms is as of the answer's sending. That was not before we asked, nor before the gateway had spent
    // served_ms on it; how long the answer took to arrive is not known.
    const milliseconds validity{number(lease, "validity_ms").value_or(0)};
    const milliseconds served{std::max<std::int64_t>(number(lease, "served_ms").value_or(0), 0)};
    const auto elapsed = boot_clock::now() - asked_at;
    return asked_at + std::min<boot_clock::duration>(served, elapsed) + validity;
}

request lease_question(const std::string& lease_id) {
    request what;
    what.target = "/v1/leases/" + runtime::percent_encode(lease_id);
    return what;
}

lease_stream::confirmation read_confirmation(const answer& got, boot_clock::time_point asked_at) {
    lease_stream::confirmation out;
    out.lost = got.status == 410;
    if (got.ok()) out.valid_until = valid_from(parse_object(got.body), asked_at);
    return out;
}

}  // namespace

void say(const std::string& what) {
    std::cerr << "fencegate lock: " << what << "\n" << std::flush;
}

std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const auto& name : names)
        out += (out.empty() ? "" : ",") + name;
    return out;
}

lease_stream::lease_stream(asio::io_context& io, const client& gateway, const lock_options& wanted)
    : io_(io), gateway_(gateway), wanted_(wanted), idempotency_key_("lock-" + runtime::random_hex128()) {}

milliseconds lease_stream::time_left() const {
    if (!wanted_.wait) return milliseconds::max();
    const auto left = std::chrono::ceil<milliseconds>(began_ + *wanted_.wait - boot_clock::now());
    return std::max(left, milliseconds{0});
}

request lease_stream::make_request(milliseconds wait) const {
    json::object body;
    if (wanted_.resources.size() == 1) {
        body["resource"] = wanted_.resources.front();
    } else {
        body["resources"] = json::value_from(wanted_.resources);
    }
    body["wait_ms"] = wait.count();
    if (wanted_.ttl) body["ttl_ms"] = wanted_.ttl->count();
    if (wanted_.max_hold) body["max_hold_ms"] = wanted_.max_hold->count();
    if (!wanted_.owner.empty()) body["owner"] = wanted_.owner;
    request out;
    out.method = "POST";
    out.target = "/v1/leases";
    out.accept = "text/event-stream";
    out.api_key = gateway_.api_key();
    out.idempotency_key = idempotency_key_;
    out.body = json::serialize(body);
    return out;
}

void lease_stream::report_once(const std::string& what) {
    if (!std::exchange(reported_, true)) say(what);
}

asio::awaitable<std::optional<lock_refusal>> lease_stream::open() {
    milliseconds wait{0};
    milliseconds retry_pause = retry_first;
    for (;;) {
        connection_ = std::make_unique<http_exchange>(io_, gateway_.at(), gateway_.authorities());
        asked_at_ = boot_clock::now();
        answer got;
        lock_refusal refusal{exit_unavailable, {}};
        request what = make_request(wait);
        try {
            got = co_await connection_->send(std::move(what), wait + gateway_.timeout());
        } catch (const unreachable& e) {
            if (!waiting_) throw;
            refusal.text = e.what();
        }
        if (got.streams()) co_return std::nullopt;

        const bool held = got.status == 423;
        // 410: granted, but over before the gateway could say so.
        const bool passes =
            got.status == 410 || (waiting_ && (got.status == 0 || got.status == 429 || got.status >= 500));
        if (got.status != 0) {
            refusal.exit_code = exit_code_of_refusal(got.status);
            refusal.text = describe(got);
        }
        milliseconds pause{0};
        if (held) {
            const json::object problem = parse_object(got.body);
            const std::string holder = describe_holder(problem);
            if (!holder.empty()) refusal.text += "\n  " + holder;
            if (!std::exchange(waiting_, true) && may_wait() && isatty(STDERR_FILENO) == 1)
                say("waiting for " + joined(wanted_.resources) + (holder.empty() ? "" : ", " + holder));
            // One that was answered before its time must not be repeated without a pause.
            const bool waited = boot_clock::now() - asked_at_ >= wait / 2;
            wait = std::min(milliseconds(number(problem, "max_wait_ms").value_or(0)), time_left());
            if (wait <= milliseconds{0} || !waited) pause = poll_pause;
            retry_pause = retry_first;
        } else if (passes) {
            report_once(refusal.text + "\n  still waiting for " + joined(wanted_.resources) + "; trying again");
            pause = retry_pause;
            retry_pause = std::min(2 * retry_pause, retry_most);
        }
        if ((!held && !passes) || !may_wait()) co_return refusal;
        wait = std::min(wait, time_left());
        if (pause > milliseconds{0}) {
            asio::steady_timer timer(io_, std::min(pause, time_left()));
            co_await timer.async_wait(asio::use_awaitable);
        }
    }
}

boot_clock::time_point lease_stream::valid_until(const json::object& lease) const {
    return valid_from(lease, asked_at_);
}

asio::awaitable<lease_stream::confirmation> lease_stream::confirm(std::string lease_id, milliseconds within) const {
    http_exchange connection(io_, gateway_.at(), gateway_.authorities());
    request what = lease_question(lease_id);
    what.api_key = gateway_.api_key();
    const auto asked_at = boot_clock::now();
    try {
        const answer got = co_await connection.send(std::move(what), within);
        co_return read_confirmation(got, asked_at);
    } catch (const unreachable&) {
        co_return confirmation{};
    }
}

lease_stream::confirmation lease_stream::confirm_now(const std::string& lease_id) const {
    const auto asked_at = boot_clock::now();
    try {
        return read_confirmation(gateway_.call(lease_question(lease_id)), asked_at);
    } catch (const unreachable&) {
        return {};
    }
}

}  // namespace fencegate::cli
