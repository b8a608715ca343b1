#include <gateway/audit/storage_watch.hpp>

#include <gateway/audit/event_sink.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/write/fence_executor.hpp>
#include <gateway/runtime/rethrow.hpp>

#include <lockcore/lock_manager.hpp>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace fencegate::audit {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr steady_clock::duration interval = 1s;
constexpr steady_clock::duration interval_during_change = 200ms;
constexpr auto call_timeout = 5s;
/// At once, and again after `interval`: meanwhile a connection to the replaced server may acknowledge writes that are
/// under way there.
constexpr int lookups_after_change = 2;
/// Write ids in one query. If none of so many consecutively acknowledged writes is lost, no older one is looked up.
constexpr std::size_t looked_up_at_once = 10'000;
/// Write ids that the history's row and the log name; the others are counted.
constexpr std::size_t named_max = 1'000;

std::string name_some(const std::vector<std::string>& write_ids) {
    constexpr std::size_t most = 20;
    const std::span some(write_ids.data(), std::min(write_ids.size(), most));
    return fmt::format("{}{}", fmt::join(some, ", "), write_ids.size() > most ? ", …" : "");
}

}  // namespace

struct storage_watch::impl {
    impl(pg::storage_register& s, event_sink& e, asio::io_context& i, std::string name)
        : storage(s), events(e), io(i), gateway(std::move(name)) {}

    static steady_clock::time_point deadline() { return steady_clock::now() + call_timeout; }

    static asio::awaitable<void> run(std::shared_ptr<impl> self) {
        asio::steady_timer timer(self->io);
        for (;;) {
            const bool settled = co_await self->look();
            if (self->stopping) co_return;
            timer.expires_after(settled ? interval : interval_during_change);
            co_await timer.async_wait(asio::use_awaitable);
            if (self->stopping) co_return;
        }
    }

    /// Compares the generation, and makes a change where one is needed. Out: false if it is to be repeated soon.
    asio::awaitable<bool> look() {
        auto state = co_await storage.find_state(deadline());
        if (!state) {  // readiness and the log report that PostgreSQL does not answer
            if (floor_known) find_replaced();
            co_return true;
        }
        if (!state->current) {
            if (current.exchange(false)) {
                spdlog::error(
                    "PostgreSQL was promoted, restored or replaced (it was {}, it is {}): nothing is let in until the "
                    "floor of all fences is above every older token",
                    state->stored.empty() ? "unknown" : state->stored, state->live);
                pg::session_slot::renew_all();  // the others may still be connected to the server before
            }
            const bool changed = co_await make_change();
            co_return changed;
        }
        if (state->floor < floor) co_return false;  // a connection to a server that was replaced, which ends now
        if (state->floor > floor) {
            locks->raise_hints(state->floor);
            if (floor_known) lookups_left = lookups_after_change;
            floor = state->floor;
        }
        floor_known = true;
        current = true;
        find_replaced();
        if (lookups_left == 0) co_return true;
        const bool settled = co_await settle();
        co_return settled;
    }

    /// Finds out whether a majority of the nodes knows of a change that this PostgreSQL does not. A minority may know of
    /// one that was never finished.
    void find_replaced() {
        std::vector<lockcore::epoch> floors;
        for (const auto& node : locks->nodes())
            floors.push_back(node.floor_epoch);
        const auto quorum = static_cast<std::ptrdiff_t>(lockcore::majority_of(floors.size()));
        std::ranges::nth_element(floors, floors.begin() + quorum - 1, std::greater{});
        const lockcore::epoch known_by_majority = floors[static_cast<std::size_t>(quorum - 1)];
        const bool found = known_by_majority > floor;
        if (found && !replaced.exchange(true)) {
            spdlog::error(
                "the Redis nodes know of a newer storage generation than this PostgreSQL: it was replaced and still "
                "answers, or an old state of it was put back (then run fencegate fence-all); nothing is let in");
        }
        if (!found && replaced.exchange(false)) spdlog::info("PostgreSQL has the newest storage generation again");
        pg::session_slot::require_floor(std::max(floor, known_by_majority));
    }

    asio::awaitable<bool> make_change() {
        lockcore::epoch seen{};
        for (const auto& node : locks->nodes())
            seen = std::max(seen, node.observed_epoch);
        for (;;) {
            const auto begun = co_await storage.begin_change(seen, deadline());
            if (!begun) {
                spdlog::warn("the change of the storage generation could not begin: {}", begun.error().detail);
                co_return false;
            }
            if (!*begun) co_return false;  // another gateway has made it meanwhile
            auto announced = co_await locks->announce_floor(**begun);
            // A node may forget and be readmitted while the others answer: a second announcement shows it.
            const bool once_more = announced && announced->by_all && !announced->by_majority;
            if (once_more) announced = co_await locks->announce_floor(**begun);
            if (!announced) co_return false;
            if (const auto close = lockcore::value_of(announced->too_close); close > 0) {
                // The floor that was drawn last is returned again unless it is below this.
                seen = std::max(seen, lockcore::epoch{close + lockcore::floor_distance});
                continue;
            }
            if (!announced->by_majority && !(once_more && announced->by_all)) {
                if (!std::exchange(waits_for_nodes, true))
                    spdlog::warn("the change of the storage generation waits until a majority of the nodes votes");
                co_return false;
            }
            waits_for_nodes = false;
            const bool finished = co_await finish_change((*begun)->change_id);
            co_return finished;
        }
    }

    asio::awaitable<bool> finish_change(std::string change_id) {
        const bool looked_up = co_await find_lost();
        if (!looked_up) co_return false;
        pg::change_report report;
        report.gateway = gateway;
        report.lost_writes = lost;
        const auto finished = co_await storage.finish_change(std::move(change_id), std::move(report), deadline());
        if (!finished)
            spdlog::warn("the change of the storage generation could not be finished: {}", finished.error().detail);
        if (!finished || !*finished) co_return false;
        spdlog::warn("the storage generation has changed: all tokens given before are refused from now on");
        report_lost(false);
        co_return false;  // look() reads the new floor
    }

    /// After a change, by whichever gateway: reports the acknowledged writes that are gone. Out: whether that succeeded.
    asio::awaitable<bool> settle() {
        const bool looked_up = co_await find_lost();
        if (!looked_up) co_return false;
        report_lost(true);
        if (--lookups_left == 0) ++changes;
        co_return true;
    }

    /// Adds to `lost` those of the acknowledged writes that are gone: the newest. Out: false if PostgreSQL could not be
    /// asked.
    asio::awaitable<bool> find_lost() {
        const std::vector<std::string> suspects = acknowledged.list();
        std::vector<std::string> found;
        for (std::size_t end = suspects.size(), begin = 0; end > 0; end = begin) {
            begin = end - std::min(end, looked_up_at_once);
            std::vector<std::string> some(suspects.begin() + static_cast<std::ptrdiff_t>(begin),
                                          suspects.begin() + static_cast<std::ptrdiff_t>(end));
            const auto gone = co_await storage.find_lost_writes(std::move(some), deadline());
            if (!gone) co_return false;
            if (gone->empty()) break;
            found.insert(found.end(), gone->begin(), gone->end());
        }
        acknowledged.forget(found);
        std::ranges::move(found, std::back_inserter(lost));
        co_return true;
    }

    /// `record`: whether the history is to name them; the row of a change that this gateway made does already.
    void report_lost(bool record) {
        if (lost.empty()) return;
        lost_writes += lost.size();
        spdlog::error("{} writes that this gateway acknowledged are lost: {}", lost.size(), name_some(lost));
        if (record) {
            history_item item;
            item.event = "storage_generation_changed";
            item.at = std::chrono::system_clock::now();
            const auto named_end = lost.begin() + static_cast<std::ptrdiff_t>(std::min(lost.size(), named_max));
            item.detail =
                boost::json::serialize(boost::json::object{{"gateway", gateway},
                                                           {"lost_writes", boost::json::array(lost.begin(), named_end)},
                                                           {"lost_write_count", lost.size()}});
            events.add(std::move(item));
        }
        lost.clear();
    }

    pg::storage_register& storage;
    event_sink& events;
    asio::io_context& io;
    const std::string gateway;
    lockcore::lock_manager* locks = nullptr;
    acknowledged_writes acknowledged;
    std::atomic<bool> stopping{false}, current{true}, replaced{false};
    std::atomic<std::uint64_t> changes{0}, lost_writes{0};

    // From here on of the coroutine.
    lockcore::epoch floor{};
    bool floor_known = false;
    int lookups_left = 0;  ///< How often the acknowledged writes are still to be looked up after a change.
    bool waits_for_nodes = false;
    std::vector<std::string> lost;  ///< Acknowledged writes that are gone, and not reported yet.
};

storage_watch::storage_watch(pg::storage_register& storage, event_sink& events, asio::io_context& io,
                             std::string gateway)
    : impl_(std::make_shared<impl>(storage, events, io, std::move(gateway))) {}

storage_watch::~storage_watch() {
    impl_->stopping = true;
}

void storage_watch::start(lockcore::lock_manager& locks) {
    impl_->locks = &locks;
    asio::co_spawn(impl_->io, impl::run(impl_), runtime::rethrow);
}

result<void> storage_watch::check() const {
    if (impl_->current && !impl_->replaced) return {};
    failure out = pg::unavailable_because(pg::cause_of("FG503"));
    out.facts["cause"] = pg::generation_changed;
    return out;
}

storage_watch::readings storage_watch::counts() const {
    return {impl_->current && !impl_->replaced, impl_->changes, impl_->lost_writes};
}

acknowledged_writes& storage_watch::acknowledged() {
    return impl_->acknowledged;
}

}  // namespace fencegate::audit
