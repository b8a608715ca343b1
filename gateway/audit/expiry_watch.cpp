#include <gateway/audit/expiry_schedule.hpp>
#include <gateway/audit/expiry_watch.hpp>
#include <gateway/runtime/rethrow.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

namespace fencegate::audit {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::system_clock;

constexpr auto sweep_interval = 500ms;
/// How long after its expiry a lease is checked, so that events of other gateways can arrive.
constexpr auto grace = 2s;
constexpr auto call_timeout = 5s;
/// The newest events of an expired lease that are read at a time.
constexpr std::size_t events_read = 100;

using watched_lease = expiry_schedule::watched_lease;

std::chrono::milliseconds ttl_of(const history_item& item) {
    boost::system::error_code fault;
    const auto detail = boost::json::parse(item.detail.empty() ? "null" : item.detail, fault);
    const auto* object = fault ? nullptr : detail.if_object();
    const auto* ttl = object == nullptr ? nullptr : object->if_contains("ttl_ms");
    return std::chrono::milliseconds(ttl != nullptr && ttl->is_int64() ? ttl->get_int64() : 0);
}

}  // namespace

struct expiry_watch::impl {
    impl(event_sink& s, pg::history_executor& h, asio::io_context& i) : sink(s), history(h), io(i) {}

    void track(const lockcore::event& e) {
        if (e.resources.empty()) return;
        switch (e.kind) {
            case lockcore::event_kind::lease_granted:
                return schedule.add_lease(
                    {e.resources, e.token, {e.actor.principal, e.actor.owner, e.trace_id}, e.at + e.ttl});
            case lockcore::event_kind::lease_renewed:
                return schedule.renew_lease(e.resources, e.token, e.at + e.ttl);
            case lockcore::event_kind::lease_released:
            case lockcore::event_kind::lease_revoked:
                schedule.remove_lease(e.resources, e.token);
                return;
            default:
                return;
        }
    }

    /// Adds lease_expired if the lease has expired, removes it if it ended, or schedules the next check.
    asio::awaitable<void> check_lease(watched_lease lease) {
        const auto now = system_clock::now();
        history_query query;
        query.resource = lease.resources.front().str();
        query.token_min = query.token_max = lockcore::value_of(lease.token);
        query.limit = events_read;
        std::optional<system_clock::time_point> until;
        for (bool more = true; more && !until;) {
            const auto page = co_await history.read(std::string(), read_cost::cheap, query,
                                                    std::chrono::steady_clock::now() + call_timeout);
            if (!page) co_return schedule.schedule_check(lease, now);
            for (const history_item& item : page->items) {
                if (item.event == "lease_released" || item.event == "lease_revoked" || item.event == "lease_expired") {
                    schedule.remove_lease(lease.resources, lease.token);
                    co_return;
                }
                if (item.event == "lease_granted" || item.event == "lease_renewed")
                    until = std::max(until.value_or(item.at), item.at + ttl_of(item));
            }
            more = page->more;
            if (more) query.after = position_of(page->items.back());
        }
        // Its lease_granted has not reached the history yet, or another gateway has renewed it.
        if (!until || *until + grace > now) co_return schedule.schedule_check(lease, until.value_or(now));
        querying_nodes = true;
        if (stopping) {
            querying_nodes = false;
            co_return;
        }
        const auto seen = co_await locks->find_lease(lease.resources.front());
        querying_nodes = false;
        if (!seen) co_return schedule.schedule_check(lease, now);
        if (*seen && (*seen)->claims.token == lease.token)
            co_return schedule.schedule_check(lease, now + (*seen)->remaining);
        if (!schedule.remove_lease(lease.resources, lease.token)) co_return;  // it was released meanwhile
        for (const auto& resource : lease.resources) {
            history_item item;
            item.at = *until;
            item.event = "lease_expired";
            item.resource = resource.str();
            item.fencing_token = lockcore::value_of(lease.token);
            item.initiator = lease.initiator;
            sink.add(std::move(item));
        }
    }

    static asio::awaitable<void> watch(std::shared_ptr<impl> self) {
        asio::steady_timer timer(self->io);
        while (!self->stopping) {
            timer.expires_after(sweep_interval);
            co_await timer.async_wait(asio::use_awaitable);
            // A lease that is scheduled again is due after the grace, so that this loop ends.
            while (!self->stopping) {
                auto lease = self->schedule.take_due(system_clock::now() - grace);
                if (!lease) break;
                co_await self->check_lease(std::move(*lease));
            }
        }
    }

    event_sink& sink;
    pg::history_executor& history;
    asio::io_context& io;
    lockcore::lock_manager* locks = nullptr;
    std::atomic<bool> stopping{false};
    std::atomic<bool> querying_nodes{false};  ///< A call of the lock_manager is under way.
    expiry_schedule schedule;
};

expiry_watch::expiry_watch(event_sink& sink, pg::history_executor& history, asio::io_context& io)
    : sink_(sink), impl_(std::make_shared<impl>(sink, history, io)) {}

expiry_watch::~expiry_watch() {
    stop();
}

void expiry_watch::stop() {
    impl_->stopping = true;
    while (impl_->querying_nodes)
        std::this_thread::sleep_for(1ms);
}

void expiry_watch::on_event(lockcore::event e) {
    impl_->track(e);
    sink_.on_event(std::move(e));
}

void expiry_watch::start(lockcore::lock_manager& locks) {
    impl_->locks = &locks;
    asio::co_spawn(impl_->io, impl::watch(impl_), runtime::rethrow);
}

}  // namespace fencegate::audit
