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
#include <span>
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
    const auto start_searches = [this](const std::vector<resource_name>& wanted, std::optional<node_index> only) {
        std::vector<std::shared_ptr<shard::pending_call>> out;
        for (const resource_name& name : wanted)
            out.push_back(leases_.start_call(input::find_lease{{}, name, only}));
        return out;
    };
    std::vector<resource_name> unsure;  // no majority has an exclusive lease
    std::vector<std::vector<nonce>> on_majority;
    const auto on_all_nodes = start_searches(names, std::nullopt);
    for (std::size_t i = 0; i < names.size(); ++i) {
        auto found = co_await shard::await_found(on_all_nodes[i]);
        if (!found || found->lease) continue;
        unsure.push_back(names[i]);
        on_majority.push_back(std::move(found->sharing));
    }
    std::vector<suspect> out;
    const auto on_this_node = start_searches(unsure, static_cast<node_index>(node));
    for (std::size_t i = 0; i < unsure.size(); ++i) {
        auto found = co_await shard::await_found(on_this_node[i]);
        if (!found) continue;
        if (found->lease) found->sharing.push_back(found->lease->claims.attempt_id);
        for (const nonce& attempt : found->sharing) {
            if (std::ranges::find(on_majority[i], attempt) == on_majority[i].end()) out.push_back({unsure[i], attempt});
        }
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

std::string position_of(const resource_name& resource, const nonce& attempt) {
    return resource.str() + resource_name::separator + std::string(attempt.str());
}

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

bool is_page_position(std::string_view text) {
    const std::size_t tab = text.find(resource_name::separator);
    return resource_name::is_prefix(text.substr(0, tab)) &&
           (tab == std::string_view::npos || nonce::parse(text.substr(tab + 1)));
}

asio::awaitable<result<lease_page>> shard::list_leases(lease_query query) {
    const auto turn = co_await listings_.take(query.principal,
                                              std::min(query.until, std::chrono::steady_clock::now() + turn_wait_max));
    if (!turn) co_return make_failure(errc::busy, "Other listings of the leases are in progress.");

    // The page before may have ended within those that share a resource.
    const std::size_t tab = query.after.find(resource_name::separator);
    const bool is_within = tab != std::string::npos;
    const std::string after_name = query.after.substr(0, tab);
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
                if (name.text < after_name || (name.text == after_name && !is_within)) continue;
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
    std::string position;
    std::vector<std::pair<resource_name, std::shared_ptr<pending_call>>> searches;
    for (const std::string& name : names) {
        auto resource = resource_name::parse(name);
        if (!resource) continue;  // not a key of lockcore
        auto search = start_call(input::find_lease{{}, *resource, std::nullopt});
        searches.emplace_back(std::move(*resource), std::move(search));
    }
    for (const auto& [resource, search] : searches) {
        if (page.leases.size() >= query.limit) {
            page.next = position;
            break;
        }
        auto found = co_await await_found(search);
        if (!found && found.error().code == errc::no_quorum) co_return found.error();
        if (!found) continue;  // another value occupies the key
        if (found->lease) {
            page.leases.push_back(std::move(*found->lease));
            page.leases.back().claims.resources = {resource};
            page.leases.back().claims.shared.clear();
        }
        std::span<const nonce> sharing(found->sharing);
        while (!sharing.empty() && is_within && position_of(resource, sharing.front()) <= query.after)
            sharing = sharing.subspan(1);
        const std::size_t left = query.limit - page.leases.size();
        const bool is_cut = sharing.size() > left;
        if (is_cut) sharing = sharing.first(left);
        const std::size_t first = page.leases.size();
        const auto added = co_await add_sharing(resource, sharing, page.leases);
        if (!added) co_return added.error();
        for (std::size_t i = first; i < page.leases.size(); ++i) {
            page.leases[i].claims.resources.clear();
            page.leases[i].claims.shared = {resource};
        }
        if (is_cut) {
            page.next = position_of(resource, sharing.back());
            break;
        }
        position = resource.str();
    }
    co_return page;
}

asio::awaitable<result<found_lease>> shard::await_found(std::shared_ptr<pending_call> search) {
    if (!search->done.has_fired()) co_await search->done.wait();
    co_return std::get<result<found_lease>>(std::move(*search->outcome));
}

asio::awaitable<result<void>> shard::add_sharing(const resource_name& resource, std::span<const nonce> attempts,
                                                 std::vector<live_lease>& out) {
    std::vector<std::shared_ptr<pending_call>> searches;
    for (const nonce& attempt : attempts)
        searches.push_back(start_call(input::find_lease{{}, resource, std::nullopt, attempt}));
    result<void> outcome = boost::system::in_place_value;
    for (const auto& search : searches) {
        auto found = co_await await_found(search);
        if (!found && found.error().code == errc::no_quorum) outcome = found.error();
        if (found && found->lease) out.push_back(std::move(*found->lease));
    }
    co_return outcome;
}

asio::awaitable<result<std::optional<live_lease>>> shard::find_lease(resource_name resource,
                                                                     std::optional<nonce> sharing) {
    input::find_lease wanted{{}, std::move(resource), std::nullopt, sharing};
    auto found = co_await call<result<found_lease>>(std::move(wanted));
    if (!found) co_return found.error();
    co_return std::move(found->lease);
}

asio::awaitable<result<resource_leases>> shard::find_leases(resource_name resource, std::size_t limit) {
    input::find_lease wanted{{}, resource, std::nullopt, std::nullopt};
    auto found = co_await call<result<found_lease>>(std::move(wanted));
    if (!found) co_return found.error();
    resource_leases out;
    out.shared = !found->sharing.empty();
    if (found->lease) out.leases.push_back(std::move(*found->lease));
    const std::span<const nonce> sharing(found->sharing);
    const auto added = co_await add_sharing(resource, sharing.first(std::min(limit, sharing.size())), out.leases);
    if (!added) co_return added.error();
    // Some of them may be over since.
    out.total = limit >= sharing.size() ? out.leases.size() : sharing.size();
    co_return out;
}

asio::awaitable<result<leak_report>> shard::find_leaks() {
    if (finding_leaks_) co_return make_failure(errc::busy, "Another search for leaked leases is in progress.");
    const busy_flag busy(finding_leaks_);
    leak_scan scan(*this);
    co_return co_await scan.run();
}

}  // namespace lockcore
