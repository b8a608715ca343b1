#include <gateway/audit/storage_watch.hpp>

#include <gateway/audit/event_sink.hpp>
#include <gateway/audit/generation_steps.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/runtime/background.hpp>

#include <lockcore/lock_manager.hpp>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/uuid/string_generator.hpp>
#include <boost/uuid/uuid_io.hpp>

#include <algorithm>
#include <atomic>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace fencegate::audit {

void acknowledged_writes::add(const std::string& write_id, time_point now) {
    const entry added{now, boost::uuids::string_generator()(write_id)};
    const std::lock_guard hold(mutex_);
    entries_.push_back(added);
    while (entries_.size() > kept_max || entries_.front().at + kept_for < now)
        entries_.pop_front();
}

std::vector<std::string> acknowledged_writes::list() const {
    std::deque<entry> copied;
    {
        const std::lock_guard hold(mutex_);
        copied = entries_;
    }
    std::vector<std::string> out;
    out.reserve(copied.size());
    for (const entry& each : copied) {
        std::string& text = out.emplace_back(36, '-');
        boost::uuids::to_chars(each.write_id, text.data(), text.data() + text.size());
    }
    return out;
}

void acknowledged_writes::forget(const std::vector<std::string>& write_ids) {
    const boost::uuids::string_generator parse;
    std::set<boost::uuids::uuid> forgotten;
    for (const std::string& id : write_ids)
        forgotten.insert(parse(id));
    const std::lock_guard hold(mutex_);
    std::erase_if(entries_, [&](const entry& each) { return forgotten.contains(each.write_id); });
}

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr steady_clock::duration storage_interval = 1s;
constexpr steady_clock::duration interval_during_change = 200ms;
constexpr auto storage_call_timeout = 5s;
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

struct storage_watch::impl : generation_steps::ports {
    impl(pg::database& d, event_sink& e, asio::io_context& i, std::chrono::milliseconds request_timeout)
        : database(d), events(e), io(i), steps(*this, 2 + static_cast<int>(request_timeout / storage_interval)) {}

    static steady_clock::time_point deadline() { return steady_clock::now() + storage_call_timeout; }

    static asio::awaitable<void> run(std::shared_ptr<impl> self) {
        for (generation_step::any next = self->steps.look(); !self->stopping;) {
            next = co_await std::visit([&](auto& asked) { return self->perform(std::move(asked)); }, next);
            self->lets_writes_in = self->steps.is_current();
            self->changes = self->steps.changes();
        }
    }

    asio::awaitable<generation_step::any> perform(generation_step::find_state) {
        const auto found = co_await database.run(pg::worker_choice::any_worker(), deadline(), pg::find_storage_state);
        if (!found) co_return steps.on_state(std::nullopt);
        latest = *found;
        co_return steps.on_state(generation_steps::state{found->current, found->floor});
    }

    asio::awaitable<generation_step::any> perform(generation_step::begin_change asked) {
        auto begin = [seen = asked.seen](pg::session& session) { return pg::begin_generation_change(session, seen); };
        auto begun = co_await database.run(pg::worker_choice::any_worker(), deadline(), std::move(begin));
        if (!begun) {
            spdlog::warn("the change of the storage generation could not begin: {}", begun.error().detail);
            co_return steps.on_begun(std::nullopt);
        }
        co_return steps.on_begun(std::move(*begun));
    }

    asio::awaitable<generation_step::any> perform(generation_step::announce asked) {
        const auto announced = co_await locks->announce_floor(std::move(asked.floor));
        if (!announced) co_return steps.on_announced(std::nullopt);
        co_return steps.on_announced(*announced);
    }

    asio::awaitable<generation_step::any> perform(generation_step::find_lost_writes) {
        const bool answered = co_await find_lost();
        co_return steps.on_lost_writes(answered);
    }

    asio::awaitable<generation_step::any> perform(generation_step::finish_change asked) {
        pg::change_report report;
        report.gateway = events.gateway();
        report.lost_writes = lost;
        auto finish = [id = std::move(asked.change_id), report = std::move(report)](pg::session& session) {
            return pg::finish_generation_change(session, id, report);
        };
        const auto finished = co_await database.run(pg::worker_choice::any_worker(), deadline(), std::move(finish));
        if (!finished)
            spdlog::warn("the change of the storage generation could not be finished: {}", finished.error().detail);
        const bool done = finished && *finished;
        co_return steps.on_finished(done);
    }

    asio::awaitable<generation_step::any> perform(generation_step::wait asked) {
        asio::steady_timer timer(io);
        timer.expires_after(asked.briefly ? interval_during_change : storage_interval);
        co_await timer.async_wait(asio::use_awaitable);
        co_return steps.look();
    }

    std::vector<lockcore::node_status> nodes() const override { return locks->nodes(); }
    void raise_hints(lockcore::epoch floor) override { locks->raise_hints(floor); }
    void renew_connections() override { pg::session_slot::renew_all(); }
    void require_floor(lockcore::epoch floor) override { pg::session_slot::require_floor(floor); }

    void report(notice what) override {
        switch (what) {
            case notice::generation_changed:
                return spdlog::error(
                    "PostgreSQL was promoted, restored or replaced, or fence-all was called (it was {}, it is {}): "
                    "nothing is let in until the floor of all fences is above every older token",
                    latest.stored.empty() ? "unknown" : latest.stored, latest.live);
            case notice::waits_for_nodes:
                return spdlog::warn("the change of the storage generation waits until a majority of the nodes votes");
            case notice::change_finished:
                return spdlog::warn(
                    "the storage generation has changed: all tokens given before are refused from now on");
            case notice::replaced:
                return spdlog::error(
                    "the Redis nodes know of a newer storage generation than this PostgreSQL: it was replaced and "
                    "still answers, or an old state of it was put back (then run fencegate fence-all); nothing is let "
                    "in");
            case notice::no_longer_replaced:
                return spdlog::info("PostgreSQL has the newest storage generation again");
        }
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
            auto look_up = [some = std::move(some)](pg::session& session) {
                return pg::find_lost_writes(session, some);
            };
            const auto gone = co_await database.run(pg::worker_choice::any_worker(), deadline(), std::move(look_up));
            if (!gone) co_return false;
            if (gone->empty()) break;
            found.insert(found.end(), gone->begin(), gone->end());
        }
        acknowledged.forget(found);
        std::ranges::move(found, std::back_inserter(lost));
        co_return true;
    }

    void report_lost(bool record) override {
        if (lost.empty()) return;
        lost_writes += lost.size();
        spdlog::error("{} writes that this gateway acknowledged are lost: {}", lost.size(), name_some(lost));
        if (record) {
            history_item item;
            item.event = "storage_generation_changed";
            item.at = std::chrono::system_clock::now();
            const auto named_end = lost.begin() + static_cast<std::ptrdiff_t>(std::min(lost.size(), named_max));
            item.detail = boost::json::serialize(boost::json::object{
                {"lost_writes", boost::json::array(lost.begin(), named_end)}, {"lost_write_count", lost.size()}});
            events.add(std::move(item));
        }
        lost.clear();
    }

    pg::database& database;
    event_sink& events;
    asio::io_context& io;
    lockcore::lock_manager* locks = nullptr;
    acknowledged_writes acknowledged;
    std::atomic<bool> stopping{false}, lets_writes_in{true};
    std::atomic<std::uint64_t> changes{0}, lost_writes{0};

    // From here on of the coroutine.
    generation_steps steps;
    pg::storage_state latest;       ///< As PostgreSQL answered last.
    std::vector<std::string> lost;  ///< Acknowledged writes that are gone, and not reported yet.
};

storage_watch::storage_watch(pg::database& database, event_sink& events, asio::io_context& io,
                             std::chrono::milliseconds request_timeout)
    : impl_(std::make_shared<impl>(database, events, io, request_timeout)) {}

storage_watch::~storage_watch() {
    impl_->stopping = true;
}

void storage_watch::start(lockcore::lock_manager& locks) {
    impl_->locks = &locks;
    runtime::run_in_background(impl_->io.get_executor(), impl::run(impl_));
}

result<void> storage_watch::check() const {
    if (impl_->lets_writes_in) return {};
    return pg::unavailable_during_change();
}

storage_watch::readings storage_watch::read() const {
    return {impl_->lets_writes_in, impl_->changes, impl_->lost_writes};
}

acknowledged_writes& storage_watch::acknowledged() {
    return impl_->acknowledged;
}

}  // namespace fencegate::audit
