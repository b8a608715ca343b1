#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/session_slot.hpp>

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

/// Whoever waits for a piece of work. The first answer counts.
class waiting_caller {
  public:
    virtual ~waiting_caller() = default;
    /// Answers that PostgreSQL was silent beyond the call's time, if there was no answer yet. `unchanged`: the
    /// connection was cut before a commit was sent (session_slot::begin_commit). Called from another thread than the
    /// worker's.
    virtual void give_up(bool unchanged) noexcept = 0;

    /// The worker that took the work last; one that has handed it on does not speak for it any more.
    std::atomic<const void*> holder{nullptr};
};

/// A piece of work on a session, and whoever waits for its answer. Exactly one of run and refuse is called, once.
class job {
  public:
    explicit job(deadline until) : until_(until) {}
    virtual ~job() = default;
    job(const job&) = delete;
    job& operator=(const job&) = delete;

    /// Does the work and answers.
    virtual void run(session_slot& slot) noexcept = 0;
    /// Answers without having begun.
    virtual void refuse(failure why) noexcept = 0;

    /// For an answer in time, whatever the worker is stuck in; none: it waits as long as that takes.
    virtual std::shared_ptr<waiting_caller> caller() const { return nullptr; }

    /// Whether it may be run together with others that say so.
    virtual bool shares() const { return false; }

    deadline until() const { return until_; }

  private:
    deadline until_;
};

/// Refusals of work that has not begun: its time is over, or a queue is full.
failure too_late_failure();
failure full_failure();

/// Most pieces of work that are run together.
inline constexpr std::size_t batch_max = 64;

/// Runs pieces of work that came one after the other and all say shares(); none of them is late. Answers each.
using run_together = std::function<void(session_slot&, std::vector<std::unique_ptr<job>>)>;

/// How a worker differs from others.
struct worker_manner {
    run_together together;  ///< Empty: each piece of work alone.
    bool lazy = false;      ///< Connects when the first work comes, not before.
    bool patient = false;   ///< While PostgreSQL is away work waits, as long as it has time, and is not refused.
};

/// A thread with one connection and a queue, which it works off in order. Work that shares is taken as it waits, up to
/// batch_max at a time; nobody waits for more to come.
///
/// While PostgreSQL is away the queue stays empty, unless the worker is patient: work is refused at once, and the
/// thread tries to connect with a growing pause. Threads: member functions may be called from any thread. Limits:
/// `queued` counts the work waiting at all workers of a pool against the pool's queue_max.
class worker {
  public:
    worker(const postgres_config& cfg, std::atomic<std::size_t>& queued, worker_manner manner);
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
    void police(std::chrono::steady_clock::time_point now);

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
    worker_manner manner_;
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
