#include <gateway/cli/tick.hpp>

#include <gateway/cli/answers.hpp>
#include <gateway/cli/client.hpp>
#include <gateway/cli/lock_options.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json.hpp>

#include <utility>
#include <vector>

namespace fencegate::cli {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using std::chrono::system_clock;

/// One raised fence of the history.
struct raised_fence {
    std::int64_t token = 0;
    system_clock::time_point at;
};

/// The newest raised fences of a resource, or why they can't be read.
struct raised_fences {
    std::vector<raised_fence> items;
    std::optional<lock_refusal> fault;
};

lock_refusal refuse(const http_response& response, const std::string& context) {
    return {refusal_exit_code(response.status), context + ": " + describe(response)};
}

/// Reads the newest raised fences of a resource.
///
/// In: `tokens` further parameters of the query, which begin with `&`.
asio::awaitable<raised_fences> read_fences(const gateway_call& call, std::string resource, std::string tokens) {
    http_request request;
    request.target = "/v1/history?event=fence_raised&limit=2&resource=" + runtime::percent_encode(resource) + tokens;
    const http_response response = co_await call(std::move(request));
    raised_fences out;
    if (!response.is_success()) {
        out.fault = refuse(response, "--every has to read the history of " + resource);
        co_return out;
    }
    const json::object page = parse_object(response.body);
    const json::value* items = page.if_contains("items");
    if (items == nullptr || !items->is_array()) co_return out;
    for (const json::value& item : items->get_array()) {
        const json::object* event = item.if_object();
        if (event == nullptr) continue;
        const auto token = get_integer(*event, "fencing_token");
        const auto at = runtime::parse_rfc3339(get_text(*event, "at"));
        if (token && at) out.items.push_back({*token, *at});
    }
    co_return out;
}

http_request make_record_request(const std::string& key) {
    http_request request;
    request.method = "POST";
    request.target = "/v1/leases";
    request.body = json::serialize(json::object{{"resource", key}, {"fence_on_grant", true}});
    return request;
}

}  // namespace

std::string tick_key(const std::string& resource) {
    return resource + "@tick";
}

bool is_same_tick(system_clock::time_point previous, system_clock::time_point now, std::chrono::milliseconds every) {
    // In milliseconds: in nanoseconds the times that a gateway may send are too far apart for a number of 64 bits.
    using std::chrono::milliseconds;
    const auto difference = std::chrono::floor<milliseconds>(now) - std::chrono::floor<milliseconds>(previous);
    return std::chrono::abs(difference) * 2 < every;
}

asio::awaitable<std::optional<lock_refusal>> begin_tick(gateway_call call, std::string resource, std::int64_t token,
                                                        std::chrono::milliseconds every) {
    const std::string key = tick_key(resource);
    const std::string own = "&token_min=" + std::to_string(token) + "&token_max=" + std::to_string(token);
    const raised_fences now = co_await read_fences(call, resource, own);
    if (now.fault) co_return now.fault;
    if (now.items.empty())
        co_return lock_refusal{exit_unavailable, "the history does not have the fence of " + resource +
                                                     " that this lease raised: the tick can't be decided"};
    const raised_fences before = co_await read_fences(call, key, "");
    if (before.fault) co_return before.fault;
    const bool has_previous = !before.items.empty();
    if (has_previous && is_same_tick(before.items.front().at, now.items.front().at, every))
        co_return lock_refusal{exit_not_granted,
                               "this tick was started at " + runtime::to_rfc3339(before.items.front().at), true};

    http_request record = make_record_request(key);
    const http_response recorded = co_await call(std::move(record));
    const bool other_records = recorded.status == 423;
    if (other_records) co_return lock_refusal{exit_not_granted, "another machine is starting this tick", true};
    if (!recorded.is_success()) co_return refuse(recorded, "--every has to record the start in " + key);
    const json::object lease = parse_object(recorded.body);
    const auto recorded_token = get_integer(lease, "fencing_token").value_or(0);

    // Another caller that held the lease meanwhile has recorded its start between the two.
    const raised_fences after = co_await read_fences(call, key, "&token_max=" + std::to_string(recorded_token));
    http_request release;
    release.method = "DELETE";
    release.target = "/v1/leases/" + runtime::percent_encode(get_text(lease, "lease_id"));
    try {
        co_await call(std::move(release));
    } catch (const gateway_unreachable&) {
        // The lease ends with its ttl.
    }
    if (after.fault) co_return after.fault;
    const std::size_t expected = has_previous ? 2 : 1;
    const bool is_next = after.items.size() == expected && after.items.front().token == recorded_token &&
                         (!has_previous || after.items.back().token == before.items.front().token);
    if (!is_next) co_return lock_refusal{exit_not_granted, "another machine has started this tick", true};
    co_return std::nullopt;
}

}  // namespace fencegate::cli
