// Reports for operators: they read leases by the calls of the core.
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>
#include <proto/core_io.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lockcore {
namespace asio = boost::asio;
namespace {

/// Looks for leaked leases on one node after the other: keys without a ttl, and leases that only a minority holds. A
/// lease that is just being granted or released is on a minority too, so each is checked twice.
///
/// Threads: the thread of the shard.
/// Cancel:  (terminal) errc::cancelled.
class leak_scan {
  public:
    explicit leak_scan(shard& leases);

    asio::awaitable<result<leak_report>> run();

    /// The time between two parts of about 500 names.
    static constexpr milliseconds part_interval{250};
    /// How long one node is scanned: enough for 7 million leases. A faulty node may list its names without end.
    static constexpr std::chrono::hours node_time_max{1};
    /// The time between the two checks: longer than an attempt and its undoing take.
    static constexpr milliseconds recheck_delay{2'000};

  private:
    struct suspect {
        resource_name resource;
        nonce attempt_id;
    };
    /// Scans all keys of a node. Returns false if it was cancelled.
    asio::awaitable<bool> scan_node(std::size_t node);
    asio::awaitable<void> check_names(std::size_t node, std::vector<list_part::name> names);
    /// Returns the leases that the node has and no majority.
    asio::awaitable<std::vector<suspect>> find_minority_leases(std::size_t node, std::vector<resource_name> names);
    /// Returns false if it was cancelled.
    asio::awaitable<bool> sleep(milliseconds time);

    shard& leases_;
    asio::steady_timer timer_;
    leak_report report_;
    std::set<std::string, std::less<>> counted_;  ///< Nonces, for a lease may be on two nodes.
    static constexpr std::size_t counted_max = 10'000;
};

void add_example(std::vector<std::string>& examples, const std::string& name) {
    if (examples.size() < leak_report::examples_max && std::ranges::find(examples, name) == examples.end())
        examples.push_back(name);
}

}  // namespace

leak_scan::leak_scan(shard& leases) : leases_(leases), timer_(leases.io()) {}

asio::awaitable<result<leak_report>> leak_scan::run() {
    const bool throws_if_cancelled = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    bool running = true;
    for (std::size_t n = 0; n < leases_.nodes(); ++n) {
        report_.nodes.push_back({leases_.status_of(static_cast<node_index>(n)).name, false, 0, 0, {}});
        if (running) running = co_await scan_node(n);
    }
    co_await asio::this_coro::throw_if_cancelled(throws_if_cancelled);
    if (!running) co_return make_failure(errc::cancelled, "The search for leaked leases was cancelled.");
    co_return std::move(report_);
}

asio::awaitable<bool> leak_scan::scan_node(std::size_t node) {
    const auto until = std::chrono::steady_clock::now() + node_time_max;
    std::string cursor = "0";
    do {
        input::list next{{}, static_cast<node_index>(node), cursor, "fg:lease:*"};
        const auto part = co_await leases_.call<result<list_part>>(std::move(next));
        // If the node does not answer, or lists without end, its report stays incomplete.
        if (!part || std::chrono::steady_clock::now() >= until) co_return true;
        cursor = part->cursor;
        co_await check_names(node, part->names);
        if (!co_await sleep(part_interval)) co_return false;
    } while (cursor != "0");
    report_.nodes[node].complete = true;
    co_return true;
}

asio::awaitable<void> leak_scan::check_names(std::size_t node, std::vector<list_part::name> names) {
    auto& report = report_.nodes[node];
    std::vector<resource_name> resources;
    for (auto& name : names) {
        auto resource = resource_name::parse(name.text);
        if (!resource) continue;  // not a key of lockcore
        ++report.leases;
        if (name.without_ttl) {
            ++report.without_ttl;
            add_example(report.examples, name.text);
        }
        resources.push_back(std::move(*resource));
    }
    const std::vector<suspect> suspects = co_await find_minority_leases(node, std::move(resources));
    if (suspects.empty() || !co_await sleep(recheck_delay)) co_return;
    std::vector<resource_name> again;
    for (const suspect& s : suspects)
        again.push_back(s.resource);
    for (const suspect& s : co_await find_minority_leases(node, std::move(again))) {
        const auto same = [&s](const suspect& before) {
            return before.resource == s.resource && before.attempt_id == s.attempt_id;
        };
        if (std::ranges::none_of(suspects, same) || counted_.contains(s.attempt_id.str())) continue;
        if (counted_.size() < counted_max) counted_.emplace(s.attempt_id.str());
        ++report_.held_by_minority;
        add_example(report_.minority_examples, s.resource.str());
    }
}

asio::awaitable<std::vector<leak_scan::suspect>> leak_scan::find_minority_leases(std::size_t node,
                                                                                 std::vector<resource_name> names) {
    using found_lease = result<std::optional<live_lease>>;
    const auto start_searches = [this](const std::vector<resource_name>& wanted, std::optional<node_index> only) {
        std::vector<std::shared_ptr<shard::pending_call>> out;
        for (const resource_name& name : wanted)
            out.push_back(leases_.start_call(input::find_lease{{}, name, only}));
        return out;
    };
    std::vector<resource_name> on_no_majority;
    const auto on_all_nodes = start_searches(names, std::nullopt);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!on_all_nodes[i]->done.has_fired()) co_await on_all_nodes[i]->done.wait();
        const auto& found = std::get<found_lease>(*on_all_nodes[i]->outcome);
        if (found && !*found) on_no_majority.push_back(names[i]);
    }
    std::vector<suspect> out;
    const auto on_this_node = start_searches(on_no_majority, static_cast<node_index>(node));
    for (std::size_t i = 0; i < on_no_majority.size(); ++i) {
        if (!on_this_node[i]->done.has_fired()) co_await on_this_node[i]->done.wait();
        const auto& found = std::get<found_lease>(*on_this_node[i]->outcome);
        if (found && *found) out.push_back({on_no_majority[i], (*found)->claims.attempt_id});
    }
    co_return out;
}

asio::awaitable<bool> leak_scan::sleep(milliseconds time) {
    timer_.expires_after(time);
    boost::system::error_code ignored;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return (co_await asio::this_coro::cancellation_state).cancelled() == asio::cancellation_type::none;
}

namespace {

/// How long a listing waits for those before it.
constexpr std::chrono::seconds turn_wait_max{5};

/// Sets a flag for as long as it lives.
class busy_flag {
  public:
    explicit busy_flag(bool& flag) : flag_(flag) { flag_ = true; }
    ~busy_flag() { flag_ = false; }
    busy_flag(const busy_flag&) = delete;
    busy_flag& operator=(const busy_flag&) = delete;

  private:
    bool& flag_;
};

/// Returns the pattern of SCAN for the lease keys whose names begin with a text.
std::string lease_pattern(std::string_view prefix) {
    std::string out = "fg:lease:";
    for (const char c : prefix) {
        if (std::string_view("*?[\\").find(c) != std::string_view::npos) out += '\\';
        out += c;
    }
    return out + '*';
}

}  // namespace

asio::awaitable<result<lease_page>> shard::list_leases(lease_query query) {
    const auto turn = co_await listings_.take(query.principal,
                                              std::min(query.until, std::chrono::steady_clock::now() + turn_wait_max));
    if (!turn) co_return make_failure(errc::busy, "Other listings of the leases are in progress.");

    // Every majority includes one of so many nodes. `names` has the first `limit` + 1 names after query.after.
    const std::size_t enough = nodes() - majority_of(nodes()) + 1;
    std::set<std::string> names;
    std::vector<node_answer> answers;
    std::size_t scanned = 0;
    for (std::size_t n = 0; n < nodes() && scanned < enough; ++n) {
        // While there are more nodes than are needed, each has its share of the time, so that one whose listing does
        // not end leaves time for the others.
        const bool can_fail = nodes() - n > enough - scanned;
        const auto now = std::chrono::steady_clock::now();
        const auto until =
            can_fail ? now + (query.until - now) / static_cast<std::ptrdiff_t>(enough - scanned) : query.until;
        std::string cursor = "0";
        const char* answer = "did not list its keys in time";
        do {
            input::list next{{}, static_cast<node_index>(n), cursor, lease_pattern(query.prefix)};
            const auto part = co_await call<result<list_part>>(std::move(next));
            cursor.clear();
            if (!part) answer = "no answer";
            if (!part || std::chrono::steady_clock::now() >= until) break;
            cursor = part->cursor;
            for (const auto& name : part->names) {
                if (name.text <= query.after) continue;
                names.insert(name.text);
                if (names.size() > query.limit + 1) names.erase(std::prev(names.end()));
            }
        } while (cursor != "0" && !cursor.empty());
        if (!cursor.empty()) ++scanned;
        node_status status = core_.status(static_cast<node_index>(n));
        answers.push_back({std::move(status.name), cursor.empty() ? answer : "listed", std::move(status.detail),
                           status.quarantine_left});
    }
    if (scanned < enough)
        co_return make_no_quorum("Too few Redis nodes listed their keys in time.", std::move(answers));

    lease_page page;
    if (names.size() > query.limit) {
        names.erase(std::prev(names.end()));
        page.next = *names.rbegin();
    }
    std::vector<std::pair<resource_name, std::shared_ptr<pending_call>>> searches;
    for (const std::string& name : names) {
        auto resource = resource_name::parse(name);
        if (!resource) continue;  // not a key of lockcore
        auto search = start_call(input::find_lease{{}, *resource, std::nullopt});
        searches.emplace_back(std::move(*resource), std::move(search));
    }
    for (const auto& [resource, search] : searches) {
        if (!search->done.has_fired()) co_await search->done.wait();
        auto found = std::get<result<std::optional<live_lease>>>(std::move(*search->outcome));
        if (!found && found.error().code == errc::no_quorum) co_return found.error();
        if (!found || !*found) continue;  // over since, or another value occupies the key
        page.leases.push_back(std::move(**found));
        page.leases.back().claims.resources = {resource};
    }
    co_return page;
}

asio::awaitable<result<leak_report>> shard::find_leaks() {
    if (finding_leaks_) co_return make_failure(errc::busy, "Another search for leaked leases is in progress.");
    const busy_flag busy(finding_leaks_);
    leak_scan scan(*this);
    co_return co_await scan.run();
}

}  // namespace lockcore
