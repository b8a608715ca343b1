#pragma once

#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <support/lock_host.hpp>
#include "paper/node_client.hpp"

#include <gtest/gtest.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/use_future.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockcore {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using fencegate::testing::memory_register;
using fencegate::testing::node_client;
using fencegate::testing::redis_nodes;

struct no_history final : event_observer {
    void on_event(event) override {}
};

/// A lock_manager on one thread with three nodes.
class managed_nodes : public ::testing::Test {
  protected:
    static constexpr milliseconds max_ttl{2'000};

    managed_nodes() : managed_nodes(milliseconds{3'600'000}) {}
    explicit managed_nodes(milliseconds max_hold) {
        config cfg = servers_.config();
        cfg.max_hold = max_hold;
        cfg.max_ttl = max_ttl;
        cfg.default_ttl = 1s;
        cfg.answer_bound = 10s;  // longer than max_ttl: no FAST READMISSION, and a busy machine makes no answer late
        manager_ = std::make_unique<lock_manager>(cfg, std::vector<asio::io_context*>{&io_},
                                                  lock_manager::dependencies{epochs_, mac_, events_});
        thread_ = std::thread([this] { io_.run(); });
        manager_->start();
        EXPECT_TRUE(eventually([&] { return voting_count() == servers_.size(); }));
    }
    ~managed_nodes() override {
        manager_->stop();
        guard_.reset();
        io_.stop();
        thread_.join();
        manager_.reset();
    }

    template <class Condition>
    static bool eventually(Condition condition) {
        const auto until = std::chrono::steady_clock::now() + 15s;
        while (!condition()) {
            if (std::chrono::steady_clock::now() > until) return false;
            // Polling interval.
            std::this_thread::sleep_for(2ms);
        }
        return true;
    }
    floor_announcement announce(std::uint64_t floor, char change) {
        return *run(manager_->announce_floor({epoch{floor}, std::string(1, change)}));
    }
    node_state state(std::size_t node) const { return manager_->nodes()[node].state; }
    std::size_t voting_count() const {
        const auto all = manager_->nodes();
        return static_cast<std::size_t>(
            std::count_if(all.begin(), all.end(), [](const node_status& n) { return n.state == node_state::voting; }));
    }
    std::future<result<lease>> start_acquire(milliseconds ttl, std::vector<std::string> names = {"inventory/sku-1"},
                                             milliseconds wait = milliseconds{0}, std::string owner = {},
                                             std::string key = {}) {
        acquire_request r;
        for (const std::string& name : names)
            r.resources.push_back(*resource_name::parse(name));
        r.holder = {"tests", std::move(owner)};
        r.ttl = ttl;
        r.wait = wait;
        r.idempotency_key = std::move(key);
        return asio::co_spawn(io_, manager_->acquire(std::move(r)), asio::use_future);
    }
    result<lease> acquire(milliseconds ttl) { return start_acquire(ttl).get(); }
    template <class T>
    T run(asio::awaitable<T> work) {
        return asio::co_spawn(io_, std::move(work), asio::use_future).get();
    }
    /// Sets equal counters on all nodes, which have different epochs, so that every node stamps the next grant.
    void align_counters() {
        for (std::size_t n = 0; n < servers_.size(); ++n)
            connect_to(n).set_counter(sku, 3 * tokens_per_epoch + 5);
    }
    node_client connect_to(std::size_t node) const {
        node_client n(servers_.config().nodes[node].port);
        n.connect();
        return n;
    }

    const std::string sku = "inventory/sku-1";
    redis_nodes servers_{3};
    memory_register epochs_;
    hmac_sha256 mac_{std::string(32, 'k')};
    no_history events_;
    asio::io_context io_{1};
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> guard_{io_.get_executor()};
    std::unique_ptr<lock_manager> manager_;
    std::thread thread_;
};

}  // namespace lockcore
