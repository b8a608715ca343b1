#include <gateway/metrics/leak_watch.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace fencegate::metrics {
namespace {

namespace asio = boost::asio;

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
