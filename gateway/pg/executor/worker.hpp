#pragma once

#include <gateway/pg/executor/job.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::pg {

/// Most pieces of work that are run together.
inline constexpr std::size_t batch_max = 64;

/// How a worker differs from others.
struct worker_options {
    /// Called when the jobs of a batch have joined it; see batch_worker. Empty: each piece of work alone.
    std::function<void(session_slot&)> finish_batch{};
    bool connect_lazily = false;            ///< Connects when the first work comes, not before.
    bool queue_while_disconnected = false;  ///< While PostgreSQL is away work waits, as long as it has time.
};

/// A thread with one connection and a queue, which it works off in order. Work that joins a batch is taken as it waits,
/// up to batch_max at a time; nobody waits for more to come.
///
/// While PostgreSQL is away the queue stays empty, unless its options say otherwise: work is refused at once, and the
/// thread tries to connect with a growing pause. Threads: member functions may be called from any thread. Limits:
/// `queued` counts the work waiting at all workers of a pool against the pool's queue_max.
class worker {
  public:
    worker(const postgres_config& cfg, std::atomic<std::size_t>& queued, worker_options options);
    ~worker();
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    void start();

    /// Takes the work, or refuses it: storage_unavailable while PostgreSQL is away, overloaded, shutting_down.
    void submit(std::unique_ptr<job> work);

    std::size_t load() const { return load_.load(std::memory_order_relaxed); }

    /// Whether the last attempt to connect failed.
    bool away() const;

    /// Refuses queued work whose time is over; cuts the connection of work under way that is overdue, and answers its
    /// callers.
    void enforce_deadlines(std::chrono::steady_clock::time_point now);

    /// Takes no more work; the thread ends when the queue is empty.
    void finish();
    /// Refuses what is queued and cuts the work under way short.
    void abandon();
    bool done() const { return done_.load(); }
    void join();

  private:
    void loop();
    std::vector<std::unique_ptr<job>> next();
    bool ensure_connected();
    void perform(std::vector<std::unique_ptr<job>> work);
    bool wait_for_work();
    std::deque<std::unique_ptr<job>> take_all();
    void refuse_all(const failure& why);
    void give_up_silent(std::chrono::steady_clock::time_point now);

    const postgres_config& cfg_;
    std::atomic<std::size_t>& queued_;
    worker_options options_;
    session_slot slot_;

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::unique_ptr<job>> queue_;
    struct under_way {
        deadline until;
        std::shared_ptr<waiting_caller> caller;
    };
    std::vector<under_way> under_way_;
    bool away_ = false;  ///< The last attempt to connect failed,
    std::string cause_;  ///< and what it said.
    bool finishing_ = false;
    std::atomic<std::size_t> load_{0};  ///< Queued and under way.
    std::atomic<bool> done_{false};
    std::thread thread_;
};

}  // namespace fencegate::pg
