#include <gateway/audit/expiry_watch.hpp>

#include <gateway/runtime/background.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace fencegate::audit {
void expiry_schedule::schedule(const std::string& key, entry& watched) {
    if (watched.scheduled_at) checks_.erase({*watched.scheduled_at, key});
    watched.scheduled_at = watched.check_at;
    checks_.emplace(*watched.scheduled_at, key);
}

void expiry_schedule::add_lease(watched_lease lease) {
    const std::lock_guard lock(mutex_);
    const std::string key(lease.attempt_id.str());
    if (const auto found = leases_.find(key); found != leases_.end()) {
        entry& watched = found->second;
        watched.lease.since = lease.since;
        watched.lease.until = std::max(watched.lease.until, lease.until);  // a renewal never shortens
        watched.check_at = std::max(watched.check_at, lease.until);        // take_due() updates its time in checks_
        return;
    }
    if (leases_.size() >= leases_max) return;
    entry& watched = leases_[key];
    watched.check_at = lease.until;
    watched.lease = std::move(lease);
    schedule(key, watched);
}

bool expiry_schedule::remove_lease(const lockcore::nonce& attempt_id) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(std::string(attempt_id.str()));
    if (found == leases_.end()) return false;
    if (found->second.scheduled_at) checks_.erase({*found->second.scheduled_at, found->first});
    leases_.erase(found);
    return true;
}

std::optional<expiry_schedule::watched_lease> expiry_schedule::take_due(time_point now) {
    const std::lock_guard lock(mutex_);
    while (!checks_.empty() && checks_.begin()->first <= now) {
        const auto [at, key] = *checks_.begin();
        entry& watched = leases_.at(key);
        if (watched.check_at <= at) {
            checks_.erase(checks_.begin());
            watched.scheduled_at.reset();
            return watched.lease;
        }
        schedule(key, watched);  // it was renewed since it was scheduled
    }
    return std::nullopt;
}

void expiry_schedule::schedule_check(const watched_lease& lease, time_point at) {
    const std::lock_guard lock(mutex_);
    const auto found = leases_.find(std::string(lease.attempt_id.str()));
    if (found == leases_.end()) return;
    found->second.check_at = std::max(found->second.check_at, at);
    schedule(found->first, found->second);
}

std::size_t expiry_schedule::leases() const {
    const std::lock_guard lock(mutex_);
    return leases_.size();
}

std::size_t expiry_schedule::scheduled_checks() const {
    const std::lock_guard lock(mutex_);
    return checks_.size();
}

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::system_clock;

constexpr auto expiry_sweep_interval = 500ms;
/// How long after its expiry a lease is checked, so that events of other gateways can arrive.
constexpr auto grace = 2s;
constexpr auto expiry_read_timeout = 5s;
/// Leases whose events are read by one statement.
constexpr std::size_t leases_per_check_max = 500;
/// Leases that are looked up on the nodes at the same time.
constexpr std::size_t lookups_at_a_time = 16;
/// The largest difference of clocks with which the events of other gateways are found.
constexpr auto skew_max = 5min;

using watched_lease = expiry_schedule::watched_lease;

/// A lease that has expired by the history.
struct expired_lease {
    watched_lease lease;
    system_clock::time_point until;
};

}  // namespace

struct expiry_watch::impl final : runtime::periodic {
    impl(event_sink& s, pg::database& d, asio::io_context& i) : sink(s), database(d), io(i) {}

    void track(const lockcore::event& e) {
        if (e.resources.empty()) return;
        switch (e.kind) {
            case lockcore::event_kind::lease_granted:
            case lockcore::event_kind::lease_renewed:
                return schedule.add_lease(
                    {e.attempt_id,
                     e.resources,
                     e.shared,
                     e.token,
                     {e.actor.principal, e.actor.owner, e.origin.substr(0, e.origin.find('{')), {}},
                     e.at,
                     e.at + e.ttl,
                     e.granted_at,
                     e.kind == lockcore::event_kind::lease_granted});
            case lockcore::event_kind::lease_released:
            case lockcore::event_kind::lease_revoked:
                schedule.remove_lease(e.attempt_id);
                return;
            default:
                return;
        }
    }

    /// Takes leases that are due, at most leases_per_check.
    std::vector<watched_lease> take_batch() {
        std::vector<watched_lease> out;
        while (out.size() < leases_per_check) {
            auto lease = schedule.take_due(system_clock::now() - grace);
            if (!lease) break;
            out.push_back(std::move(*lease));
        }
        return out;
    }

    /// Removes the leases that ended, schedules the next check of those that have not expired by the history or were
    /// not found there, and looks the others up on the nodes.
    asio::awaitable<void> check_leases(std::vector<watched_lease> due) {
        std::vector<pg::asked_lease> asked;
        asked.reserve(due.size());
        for (const watched_lease& lease : due) {
            pg::asked_lease& wanted = asked.emplace_back();
            wanted.resource = lease.resources.front().str();
            wanted.token = lockcore::value_of(lease.token);
            if (lease.is_shared()) wanted.grant = grant_of(lease.attempt_id);
            wanted.since = lease.since - skew_max;
            if (!lease.granted_here) wanted.granted_since = lease.granted_at - skew_max;
        }
        const auto read_until = std::chrono::steady_clock::now() + expiry_read_timeout;
        auto read = [asked = std::move(asked)](pg::session& session) {
            return pg::read_recorded_leases(session, asked);
        };
        const auto recorded = co_await database.read(std::string(), read_cost::cheap, read_until, std::move(read));
        // If one of them has so many events that reading takes too long, the others are read without it before long.
        leases_per_check = recorded ? std::min(2 * leases_per_check, leases_per_check_max) : 1 + leases_per_check / 4;
        const auto now = system_clock::now();
        std::vector<expired_lease> expired;
        for (std::size_t i = 0; i < due.size(); ++i) {
            if (!recorded) {
                schedule.schedule_check(due[i], now);
                continue;
            }
            const auto& [ended, until, granted] = (*recorded)[i];
            const bool of_another_gateway = !due[i].granted_here && (granted || (until && *until > due[i].until));
            if (ended || of_another_gateway)
                schedule.remove_lease(due[i].attempt_id);
            else if (!until || *until + grace > now)
                // Its lease_granted has not reached the history yet, or another gateway has renewed it.
                schedule.schedule_check(due[i], until.value_or(now));
            else
                expired.push_back({std::move(due[i]), *until});
        }
        if (!expired.empty()) co_await look_up(std::move(expired));
    }

    /// Looks leases up on the nodes, several at a time, and adds lease_expired for those that no majority has.
    asio::awaitable<void> look_up(std::vector<expired_lease> expired) {
        const std::size_t coroutines = std::min(lookups_at_a_time, expired.size());
        std::size_t next = 0, running = coroutines;
        asio::steady_timer done(io, asio::steady_timer::time_point::max());
        for (std::size_t i = 0; i < coroutines; ++i) {
            asio::co_spawn(io, look_up_remaining(expired, next), [&running, &done](std::exception_ptr fault) {
                if (--running == 0) done.cancel();
                if (fault) std::rethrow_exception(fault);
            });
        }
        while (running > 0) {
            boost::system::error_code cancelled;
            co_await done.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
        }
    }

    /// Looks up the leases from `next` on, one after the other; several of these coroutines share `next`.
    asio::awaitable<void> look_up_remaining(std::vector<expired_lease>& expired, std::size_t& next) {
        while (next < expired.size()) {
            auto& [lease, until] = expired[next++];
            ++lookups;  // before is_stopping(): stop() waits for the calls that are counted
            if (is_stopping()) {
                --lookups;
                co_return;
            }
            std::optional<lockcore::nonce> sharing;
            if (lease.is_shared()) sharing = lease.attempt_id;
            const auto seen = co_await locks->find_lease(lease.resources.front(), sharing);
            --lookups;
            const auto now = system_clock::now();
            if (!seen)
                schedule.schedule_check(lease, now);
            else if (*seen && (*seen)->claims.token == lease.token)
                schedule.schedule_check(lease, now + (*seen)->remaining);
            else if (schedule.remove_lease(lease.attempt_id))  // unless it was released meanwhile
                add_expired(lease, until);
        }
    }

    void add_expired(const watched_lease& lease, system_clock::time_point until) {
        const std::size_t exclusive = lease.resources.size() - lease.shared;
        for (std::size_t i = 0; i < lease.resources.size(); ++i) {
            history_item item;
            item.at = until;
            item.event = "lease_expired";
            item.resource = lease.resources[i].str();
            if (i >= exclusive) item.detail = add_sharing({}, lease.attempt_id);
            item.fencing_token = lockcore::value_of(lease.token);
            item.initiator = lease.initiator;
            sink.add(std::move(item));
        }
    }

    asio::awaitable<duration> run_once() override {
        // A lease that is scheduled again is due after the grace, so that this loop ends.
        while (!is_stopping()) {
            auto due = take_batch();
            if (due.empty()) break;
            co_await check_leases(std::move(due));
        }
        co_return expiry_sweep_interval;
    }

    event_sink& sink;
    pg::database& database;
    asio::io_context& io;
    lockcore::lock_manager* locks = nullptr;
    std::size_t leases_per_check = leases_per_check_max;
    std::atomic<std::size_t> lookups{0};  ///< Calls of the lock_manager under way.
    expiry_schedule schedule;
};

expiry_watch::expiry_watch(event_sink& sink, pg::database& database, asio::io_context& io)
    : sink_(sink), impl_(std::make_shared<impl>(sink, database, io)) {}

expiry_watch::~expiry_watch() {
    stop();
}

void expiry_watch::stop() {
    impl_->stop();
    while (impl_->lookups > 0)
        std::this_thread::sleep_for(1ms);
}

void expiry_watch::on_event(lockcore::event e) {
    impl_->track(e);
    sink_.on_event(std::move(e));
}

void expiry_watch::start(lockcore::lock_manager& locks) {
    impl_->locks = &locks;
    impl_->start(impl_->io.get_executor(), expiry_sweep_interval);
}

}  // namespace fencegate::audit
