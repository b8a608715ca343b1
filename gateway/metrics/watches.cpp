#include <gateway/metrics/watches.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/pg/schema/waiting.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/random.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace fencegate::metrics {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr steady_clock::duration first_delay = 1s;
constexpr auto call_timeout = 10s;

bool is_guard_missing(const failure& why) {
    const auto* cause = why.facts.if_contains("cause");
    return cause != nullptr && cause->is_string() && std::string_view(cause->get_string()) == pg::guard_missing;
}

std::size_t without_ttl(const lockcore::leak_report& report) {
    std::size_t out = 0;
    for (const auto& node : report.nodes)
        out += node.without_ttl;
    return out;
}

std::string first_name(const std::vector<std::string>& names) {
    return names.empty() ? std::string("-") : names.front();
}

}  // namespace

struct guard_watch::impl final : runtime::periodic {
    impl(pg::database& d, duration between, asio::io_context& i) : database(d), interval(between), io(i) {}

    /// Asks PostgreSQL.
    asio::awaitable<duration> run_once() override {
        const auto until = steady_clock::now() + call_timeout;
        auto report = co_await database.run(pg::worker_choice::history(), until, pg::watch_guard);
        if (report)
            store(std::move(*report));
        else if (is_guard_missing(report.error()))
            store(report_missing(report.error().detail));
        else if (!is_stopping())
            spdlog::warn("the guard could not be checked: {}", report.error().detail);
        const auto extent = co_await database.run(pg::worker_choice::history(), steady_clock::now() + call_timeout,
                                                  pg::read_history_extent);
        if (extent) {
            const std::lock_guard hold(mutex);
            history = *extent;
        }
        co_return interval;
    }

    /// Returns the state without a part of the guard: every table that was known is open.
    guard_report report_missing(const std::string& fault) const {
        const std::lock_guard hold(mutex);
        boost::json::array tables;
        if (found) tables = found->report.state.at("tables").as_array();
        for (auto& each : tables) {
            auto& table = each.as_object();
            table["state"] = "open";
            table["reason"] = "fault";
            table["since"] = table["not_before"] = table["principal"] = nullptr;
            table["fault_count"] = 1;
            table["faults"] = boost::json::array{fault};
        }
        return {{fault},
                {{"tables", std::move(tables)},
                 {"faults", boost::json::array{fault}},
                 {"limits", boost::json::array{}},
                 {"storage_generation", nullptr},
                 {"compared_at", nullptr}}};
    }

    void store(guard_report report) {
        const std::lock_guard hold(mutex);
        const auto is_in = [](const std::vector<std::string>& faults_found, const std::string& fault) {
            return std::ranges::find(faults_found, fault) != faults_found.end();
        };
        for (const auto& fault : report.faults) {
            if (!found || !is_in(found->report.faults, fault)) spdlog::error("the guard has a fault: {}", fault);
        }
        if (found && !found->report.faults.empty() && report.faults.empty())
            spdlog::info("the guard has no fault any more");
        found = finding{std::move(report), std::chrono::system_clock::now()};
    }

    pg::database& database;
    const duration interval;
    asio::io_context& io;
    mutable std::mutex mutex;
    std::optional<finding> found;
    std::optional<history_extent> history;
};

guard_watch::guard_watch(pg::database& database, std::chrono::milliseconds interval, asio::io_context& io)
    : impl_(std::make_shared<impl>(database, interval, io)) {}

guard_watch::~guard_watch() {
    impl_->stop();
}

void guard_watch::start() {
    impl_->start(impl_->io.get_executor(), std::min(first_delay, impl_->interval));
}

std::optional<history_extent> guard_watch::history() const {
    const std::lock_guard hold(impl_->mutex);
    return impl_->history;
}

std::optional<guard_watch::finding> guard_watch::latest() const {
    const std::lock_guard hold(impl_->mutex);
    return impl_->found;
}

namespace {

constexpr steady_clock::duration waiting_interval = 2s;
constexpr auto waiting_read_timeout = 500ms;
constexpr std::size_t waiting_resources_max = 1'000;

/// Adds the callers of other gateways to those of this one; the resource with the most waiters comes first.
void add_callers(lockcore::waiting_overview& sum, const pg::waiting_elsewhere& others) {
    std::map<std::string, std::size_t> waiters;
    for (const auto* part : {&std::as_const(sum.resources), &others.resources}) {
        for (const lockcore::waiting_count& entry : *part)
            waiters[entry.resource] += entry.waiters;
    }
    for (const auto& [gateway, count] : others.gateways)
        sum.waiters += count;
    sum.resources.clear();
    for (const auto& [resource, count] : waiters)
        sum.resources.push_back({resource, count});
    std::ranges::stable_sort(sum.resources, std::ranges::greater{}, &lockcore::waiting_count::waiters);
    if (sum.resources.size() > waiting_resources_max) sum.resources.resize(waiting_resources_max);
}

}  // namespace

struct waiting_watch::impl final : runtime::periodic {
    impl(lockcore::lock_manager& l, pg::database& d, std::string name, asio::io_context& i)
        : locks(l), database(d), gateway(std::move(name)), io(i) {}

    asio::awaitable<duration> run_once() override {
        if (locks.waiters() == 0 && !stored) co_return waiting_interval;
        ++counts;  // before is_stopping(): stop() waits for the counts under way
        lockcore::waiting_overview callers;
        if (!is_stopping()) callers = co_await locks.list_waiters("", waiting_resources_max);
        --counts;
        stored = callers.waiters > 0;
        auto store = [self = std::static_pointer_cast<impl>(shared_from_this()), callers = std::move(callers)](
                         pg::session& session) { pg::note_waiting(session, self->instance, self->gateway, callers); };
        // Without an answer the row is outdated soon.
        co_await database.run(pg::worker_choice::any_worker(), steady_clock::now() + waiting_interval,
                              std::move(store));
        co_return waiting_interval;
    }

    lockcore::lock_manager& locks;
    pg::database& database;
    const std::string gateway;
    const std::string instance = runtime::uuid_v7();
    asio::io_context& io;
    bool stored = false;  ///< Callers were waiting the last time.
    std::atomic<int> counts{0};
};

waiting_watch::waiting_watch(lockcore::lock_manager& locks, pg::database& database, std::string gateway,
                             asio::io_context& io)
    : impl_(std::make_shared<impl>(locks, database, std::move(gateway), io)) {}

waiting_watch::~waiting_watch() {
    stop();
}

void waiting_watch::start() {
    impl_->start(impl_->io.get_executor(), waiting_interval);
}

void waiting_watch::stop() {
    impl_->stop();
    while (impl_->counts > 0)
        std::this_thread::sleep_for(1ms);
}

asio::awaitable<waiting_watch::finding> waiting_watch::count(std::string prefix, steady_clock::time_point until) const {
    finding out;
    out.callers = co_await impl_->locks.list_waiters(prefix, waiting_resources_max);
    out.gateways.emplace_back(impl_->gateway, out.callers.waiters);
    auto read = [instance = impl_->instance, prefix = std::move(prefix)](pg::session& session) {
        return pg::read_waiting(session, instance, prefix);
    };
    const auto others = co_await impl_->database.run(
        pg::worker_choice::any_worker(), std::min(until, steady_clock::now() + waiting_read_timeout), std::move(read));
    if (others) {
        add_callers(out.callers, *others);
        out.gateways.insert(out.gateways.end(), others->gateways.begin(), others->gateways.end());
        out.complete = true;
    }
    co_return out;
}

void leak_watch::start() {
    if (interval_.count() == 0) return;
    auto promise = std::make_shared<std::promise<void>>();
    ended_ = promise->get_future();
    auto ended = [promise](const std::exception_ptr& fault) {
        if (fault) spdlog::error("the search for leaked leases stopped after an exception");
        promise->set_value();
    };
    asio::co_spawn(io_, run(), asio::bind_cancellation_slot(cancel_.slot(), std::move(ended)));
}

void leak_watch::stop() {
    if (!ended_.valid()) return;
    asio::post(io_, [this] { cancel_.emit(asio::cancellation_type::terminal); });
    ended_.wait();
}

std::optional<leak_watch::finding> leak_watch::latest() const {
    const std::lock_guard hold(mutex_);
    return latest_;
}

asio::awaitable<void> leak_watch::run() {
    co_await asio::this_coro::throw_if_cancelled(false);
    // Also checked before the pause: stop() may be called during a search, and the pause would not notice it.
    while ((co_await asio::this_coro::cancellation_state).cancelled() == asio::cancellation_type::none) {
        timer_.expires_after(interval_);
        boost::system::error_code ignored;
        co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none) co_return;
        auto found = co_await locks_.find_leaks();
        if (found) store(std::move(*found));
    }
}

void leak_watch::store(lockcore::leak_report report) {
    const std::lock_guard hold(mutex_);
    // A node that could not be searched keeps its earlier result.
    for (auto& node : report.nodes) {
        if (node.complete || !latest_) continue;
        const auto before =
            std::ranges::find(latest_->report.nodes, node.name, &lockcore::leak_report::node_leaks::name);
        if (before != latest_->report.nodes.end()) node = *before;
    }
    const std::size_t leaked = without_ttl(report);
    const bool changed = !latest_ || without_ttl(latest_->report) != leaked ||
                         latest_->report.held_by_minority != report.held_by_minority;
    if (changed) {
        for (const auto& node : report.nodes) {
            if (node.without_ttl == 0) continue;
            spdlog::warn("node {} has {} lease keys without a ttl, {} among them", node.name, node.without_ttl,
                         first_name(node.examples));
        }
        if (report.held_by_minority > 0) {
            spdlog::warn("a minority of the nodes holds {} leases, {} among them", report.held_by_minority,
                         first_name(report.minority_examples));
        }
    }
    latest_ = finding{std::move(report), std::chrono::system_clock::now()};
}

}  // namespace fencegate::metrics
