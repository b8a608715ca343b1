#pragma once

#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::testing {

/// A register of epochs in memory.
class memory_register final : public lockcore::epoch_register {
  public:
    boost::asio::awaitable<lockcore::result<lockcore::node_record>> find(std::string node_name) override {
        const std::lock_guard lock(mutex_);
        const auto found = nodes_.find(node_name);
        co_return found == nodes_.end() ? lockcore::node_record{} : found->second;
    }
    boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> draw(lockcore::epoch_request request) override {
        const std::lock_guard lock(mutex_);
        lockcore::drawn_epoch drawn;
        const auto found = nodes_.find(request.node_name);
        drawn.repeated = !request.life.empty() && found != nodes_.end() && found->second.life == request.life;
        if (drawn.repeated) {
            drawn.value = found->second.latest_epoch;
            found->second.synced = found->second.synced && request.synced;
            co_return drawn;
        }
        epoch_ = std::max(epoch_, value_of(request.highest_observed)) + 1;
        drawn.value = lockcore::epoch{epoch_};
        if (!request.life.empty()) nodes_[request.node_name] = {true, drawn.value, request.life, request.synced};
        co_return drawn;
    }
    boost::asio::awaitable<lockcore::result<void>> note_unsynced(std::string node_name) override {
        const std::lock_guard lock(mutex_);
        const auto found = nodes_.find(node_name);
        if (found != nodes_.end()) found->second.synced = false;
        co_return lockcore::result<void>();
    }

  private:
    std::mutex mutex_;
    std::uint64_t epoch_ = 0;
    std::map<std::string, lockcore::node_record> nodes_;
};

class counting_observer final : public lockcore::event_observer {
  public:
    void on_event(lockcore::event e) override {
        const std::lock_guard lock(mutex_);
        ++counts_[e.kind];
    }
    int count(lockcore::event_kind kind) const {
        const std::lock_guard lock(mutex_);
        const auto found = counts_.find(kind);
        return found == counts_.end() ? 0 : found->second;
    }

  private:
    mutable std::mutex mutex_;
    std::map<lockcore::event_kind, int> counts_;
};

/// A lock_manager with threads of its own, as in a gateway.
class lock_host {
  public:
    lock_host(const lockcore::config& cfg, memory_register& epochs, unsigned threads = 1) {
        for (unsigned t = 0; t < threads; ++t) {
            ios_.push_back(std::make_unique<boost::asio::io_context>(1));
            guards_.emplace_back(ios_.back()->get_executor());
        }
        std::vector<boost::asio::io_context*> contexts;
        for (const auto& io : ios_)
            contexts.push_back(io.get());
        manager_ = std::make_unique<lockcore::lock_manager>(
            cfg, contexts, lockcore::lock_manager::dependencies{epochs, mac_, observer});
        for (const auto& io : ios_)
            threads_.emplace_back([io = io.get()] { io->run(); });
        manager_->start();
    }
    ~lock_host() {
        manager_->stop();
        guards_.clear();
        for (const auto& io : ios_)
            io->stop();
        for (auto& t : threads_)
            t.join();
        manager_.reset();
    }
    lock_host(const lock_host&) = delete;
    lock_host& operator=(const lock_host&) = delete;

    lockcore::lock_manager& manager() { return *manager_; }
    boost::asio::io_context& io(std::size_t thread = 0) { return *ios_[thread % ios_.size()]; }
    std::size_t voting_count() const {
        const auto all = manager_->nodes();
        return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const lockcore::node_status& n) {
            return n.state == lockcore::node_state::voting;
        }));
    }

    /// Starts the work on the first thread, whatever shard the resource belongs to.
    template <class T>
    std::future<T> start(boost::asio::awaitable<T> work) {
        return boost::asio::co_spawn(io(), std::move(work), boost::asio::use_future);
    }
    template <class T>
    T run(boost::asio::awaitable<T> work) {
        return start(std::move(work)).get();
    }
    lockcore::result<lockcore::lease> acquire(lockcore::acquire_request r) {
        return run(manager_->acquire(std::move(r)));
    }
    lockcore::result<lockcore::release_outcome> release(const lockcore::lease& l) {
        return run(manager_->release(l.claims, ""));
    }

    counting_observer observer;

  private:
    lockcore::hmac_sha256 mac_{std::string(32, 'k')};
    std::vector<std::unique_ptr<boost::asio::io_context>> ios_;
    std::vector<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> guards_;
    std::unique_ptr<lockcore::lock_manager> manager_;
    std::vector<std::thread> threads_;
};

/// Returns a request without an owner; with one, all callers would be the same re-entrant holder.
inline lockcore::acquire_request make_request(const std::vector<std::string>& names,
                                              lockcore::milliseconds ttl = lockcore::milliseconds{1'000},
                                              lockcore::milliseconds wait = lockcore::milliseconds{0}) {
    lockcore::acquire_request r;
    for (const std::string& name : names)
        r.resources.push_back(*lockcore::resource_name::parse(name));
    r.holder.principal = "tests";
    r.ttl = ttl;
    r.wait = wait;
    return r;
}

template <class Condition>
bool eventually(Condition condition, lockcore::milliseconds within = std::chrono::seconds(10)) {
    const auto until = std::chrono::steady_clock::now() + within;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        // Polling interval.
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

}  // namespace fencegate::testing
