#include <gateway/audit/expiry_watch.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <queue>
#include <thread>
#include <unordered_map>
#include <utility>

namespace fencegate {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::system_clock;

constexpr std::size_t watched_max = 1'000'000;
constexpr auto sweep_interval = 500ms;
/// For events of other gateways to arrive.
constexpr auto grace = 2s;
constexpr auto call_timeout = 5s;
/// Of one lease that ran out, the newest.
constexpr std::size_t events_read = 100;

struct watched {
    std::vector<lockcore::resource_name> resources;
    lockcore::fencing_token token{};
    actor by;
    system_clock::time_point until;  ///< When it runs out, as far as is known here.
};

/// A lease is known by its token and its first resource.
std::string key_of(const std::vector<lockcore::resource_name>& resources, lockcore::fencing_token token) {
    return std::to_string(lockcore::value_of(token)) + ' ' + resources.front().str();
}

std::chrono::milliseconds ttl_of(const history_item& item) {
    boost::system::error_code fault;
    const auto detail = boost::json::parse(item.detail.empty() ? "null" : item.detail, fault);
    const auto* object = fault ? nullptr : detail.if_object();
    const auto* ttl = object == nullptr ? nullptr : object->if_contains("ttl_ms");
    return std::chrono::milliseconds(ttl != nullptr && ttl->is_int64() ? ttl->get_int64() : 0);
}

}  // namespace

struct expiry_watch::impl {
    using due = std::pair<system_clock::time_point, std::string>;

    impl(event_sink& s, pg::pool& p, asio::io_context& i) : sink(s), pool(p), io(i) {}

    void note(const lockcore::event& e) {
        if (e.resources.empty()) return;
        const std::lock_guard lock(mutex);
        switch (e.kind) {
            case lockcore::event_kind::lease_granted: {
                if (leases.size() >= watched_max) return;
                auto key = key_of(e.resources, e.token);
                queue.emplace(e.at + e.ttl, key);
                leases.insert_or_assign(
                    std::move(key),
                    watched{e.resources, e.token, {e.by.principal, e.by.owner, e.trace_id}, e.at + e.ttl});
                return;
            }
            case lockcore::event_kind::lease_renewed:
                if (const auto found = leases.find(key_of(e.resources, e.token)); found != leases.end())
                    found->second.until = e.at + e.ttl;
                return;
            case lockcore::event_kind::lease_released:
            case lockcore::event_kind::lease_revoked:
                leases.erase(key_of(e.resources, e.token));
                return;
            default:
                return;
        }
    }

    /// One whose time is over, if there is any; it stays among the leases.
    std::optional<watched> next() {
        const std::lock_guard lock(mutex);
        const auto now = system_clock::now();
        while (!queue.empty() && queue.top().first + grace <= now) {
            auto [at, key] = queue.top();
            queue.pop();
            const auto found = leases.find(key);
            if (found == leases.end()) continue;
            if (found->second.until <= at) return found->second;
            queue.emplace(found->second.until, std::move(key));
        }
        return std::nullopt;
    }

    void look_again(const watched& lease, system_clock::time_point at) {
        const std::lock_guard lock(mutex);
        auto key = key_of(lease.resources, lease.token);
        const auto found = leases.find(key);
        if (found == leases.end()) return;
        found->second.until = std::max(found->second.until, at);
        queue.emplace(found->second.until, std::move(key));
    }

    /// False: it was given back meanwhile.
    bool forget(const watched& lease) {
        const std::lock_guard lock(mutex);
        return leases.erase(key_of(lease.resources, lease.token)) > 0;
    }

    asio::awaitable<void> judge(watched lease) {
        const auto now = system_clock::now();
        history_query query;
        query.resource = lease.resources.front().str();
        query.token_min = query.token_max = lockcore::value_of(lease.token);
        query.limit = events_read;
        const auto page = co_await pool.read_history(std::move(query), std::chrono::steady_clock::now() + call_timeout);
        if (!page) co_return look_again(lease, now);
        std::optional<system_clock::time_point> until;
        for (const history_item& item : page->items) {
            if (item.event == "lease_released" || item.event == "lease_revoked" || item.event == "lease_expired") {
                forget(lease);
                co_return;
            }
            if (item.event == "lease_granted" || item.event == "lease_renewed")
                until = std::max(until.value_or(item.at), item.at + ttl_of(item));
        }
        // Its own grant is still on its way, or somebody else has renewed it.
        if (!until || *until + grace > now) co_return look_again(lease, until.value_or(now));
        asking = true;
        if (stopping) {
            asking = false;
            co_return;
        }
        const auto seen = co_await locks->look(lease.resources.front());
        asking = false;
        if (!seen) co_return look_again(lease, now);
        if (*seen && (*seen)->claims.token == lease.token) co_return look_again(lease, now + (*seen)->remaining);
        if (!forget(lease)) co_return;
        for (const auto& resource : lease.resources) {
            history_item item;
            item.at = *until;
            item.event = "lease_expired";
            item.resource = resource.str();
            item.fencing_token = lockcore::value_of(lease.token);
            item.by = lease.by;
            sink.add(std::move(item));
        }
    }

    static asio::awaitable<void> watch(std::shared_ptr<impl> self) {
        asio::steady_timer timer(self->io);
        while (!self->stopping) {
            timer.expires_after(sweep_interval);
            co_await timer.async_wait(asio::use_awaitable);
            // What looks again comes after the grace, so that this ends.
            while (!self->stopping) {
                auto lease = self->next();
                if (!lease) break;
                co_await self->judge(std::move(*lease));
            }
        }
    }

    event_sink& sink;
    pg::pool& pool;
    asio::io_context& io;
    lockcore::lock_manager* locks = nullptr;
    std::atomic<bool> stopping{false};
    std::atomic<bool> asking{false};  ///< The lock_manager is being asked.
    std::mutex mutex;
    std::unordered_map<std::string, watched> leases;
    std::priority_queue<due, std::vector<due>, std::greater<>> queue;
};

expiry_watch::expiry_watch(event_sink& sink, pg::pool& pool, asio::io_context& io)
    : sink_(sink), impl_(std::make_shared<impl>(sink, pool, io)) {}

expiry_watch::~expiry_watch() {
    stop();
}

void expiry_watch::stop() {
    impl_->stopping = true;
    while (impl_->asking)
        std::this_thread::sleep_for(1ms);
}

void expiry_watch::on_event(lockcore::event e) {
    impl_->note(e);
    sink_.on_event(std::move(e));
}

void expiry_watch::start(lockcore::lock_manager& locks) {
    impl_->locks = &locks;
    asio::co_spawn(impl_->io, impl::watch(impl_), asio::detached);
}

}  // namespace fencegate
