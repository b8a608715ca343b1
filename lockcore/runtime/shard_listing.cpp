// Reports for operators: they read leases by the calls of the core.
#include <proto/failures.hpp>
#include <runtime/leak_scan.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/use_awaitable.hpp>

#include <set>

namespace lockcore {
namespace asio = boost::asio;
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
        // While there are more nodes than are needed, each has its share of the time, so that one whose listing does not
        // end leaves time for the others.
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
