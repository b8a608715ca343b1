#include <gateway/metrics/guard_watch.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/runtime/background.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>

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

}  // namespace

struct guard_watch::impl {
    impl(pg::database& d, steady_clock::duration between, asio::io_context& i)
        : database(d), interval(between), io(i) {}

    static asio::awaitable<void> run(std::shared_ptr<impl> self) {
        asio::steady_timer timer(self->io);
        auto pause = std::min<steady_clock::duration>(first_delay, self->interval);
        for (;;) {
            timer.expires_after(pause);
            co_await timer.async_wait(asio::use_awaitable);
            if (self->stopping) co_return;
            const auto until = steady_clock::now() + call_timeout;
            auto report = co_await self->database.run(pg::place::history(), until, pg::watch_guard);
            if (report)
                self->store(std::move(*report));
            else if (is_guard_missing(report.error()))
                self->store(self->report_missing(report.error().detail));
            else if (!self->stopping)
                spdlog::warn("the guard could not be checked: {}", report.error().detail);
            pause = self->interval;
        }
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
    const steady_clock::duration interval;
    asio::io_context& io;
    std::atomic<bool> stopping{false};
    mutable std::mutex mutex;
    std::optional<finding> found;
};

guard_watch::guard_watch(pg::database& database, std::chrono::milliseconds interval, asio::io_context& io)
    : impl_(std::make_shared<impl>(database, interval, io)) {}

guard_watch::~guard_watch() {
    impl_->stopping = true;
}

void guard_watch::start() {
    runtime::run_in_background(impl_->io.get_executor(), impl::run(impl_));
}

std::optional<guard_watch::finding> guard_watch::latest() const {
    const std::lock_guard hold(impl_->mutex);
    return impl_->found;
}

}  // namespace fencegate::metrics
