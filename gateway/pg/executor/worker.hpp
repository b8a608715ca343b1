#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/principal_share.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/executor/job.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Counts how long workers took for what they did at once, in classes: the n-th count has times of up to 0.25 ms · 2^n,
/// the last one all longer ones.
///
/// Threads: safe.
class work_times {
  public:
    static constexpr std::size_t classes = 17;  ///< 0.25 ms, 0.5 ms, … 8.192 s, and more

    static constexpr std::chrono::microseconds end_of(std::size_t n) {
        return std::chrono::microseconds(250) * (1U << n);
    }
    void count(std::chrono::steady_clock::duration time) {
        std::size_t n = 0;
        while (n + 1 < classes && time > end_of(n))
            ++n;
        counts_[n].fetch_add(1, std::memory_order_relaxed);
        const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
        microseconds_.fetch_add(static_cast<std::uint64_t>(us), std::memory_order_relaxed);
    }
    std::uint64_t counted(std::size_t n) const { return counts_[n].load(std::memory_order_relaxed); }
    std::chrono::microseconds sum() const {
        return std::chrono::microseconds(microseconds_.load(std::memory_order_relaxed));
    }

  private:
    std::array<std::atomic<std::uint64_t>, classes> counts_{};
    std::atomic<std::uint64_t> microseconds_{0};
};

/// Counts the jobs that wait at all workers of a pool, at most `most`, of one principal at most half of that. The jobs
/// of the gateway itself, the empty principal, are not counted against the principals, and may be own_jobs more.
///
/// Threads: safe.
class queued_jobs {
  public:
    explicit queued_jobs(std::size_t most) : most_(most) {}

    /// Counts a job. Out: why it may not wait: overloaded, or too_many_requests where the principal has its share.
    std::optional<failure> try_add(const std::string& principal);
    void remove(const std::string& principal);
    std::size_t value() const;
    /// How long the workers of the pool took.
    work_times& times() { return times_; }
    const work_times& times() const { return times_; }

  private:
    static constexpr std::size_t own_jobs = 64;

    const std::size_t most_;
    mutable std::mutex mutex_;
    std::size_t value_ = 0;
    std::size_t of_gateway_ = 0;  ///< Those of the gateway itself, counted in value_ too.
    principal_uses by_principal_;
    work_times times_;
};

/// The jobs that wait at one worker. Principals take turns; the jobs of one principal keep their order.
///
/// Threads: not safe.
class job_queue {
  public:
    using job_ptr = std::unique_ptr<job>;

    void push(job_ptr work);
    /// Returns the next job. The queue must not be empty.
    const job& front() const { return *turns_.front().jobs.front(); }
    /// Takes the next job; the turn goes to the next principal.
    job_ptr pop();
    std::vector<job_ptr> take_all();
    /// Takes the jobs whose deadline has passed.
    std::vector<job_ptr> take_late(deadline now);

    bool empty() const { return size_ == 0; }
    std::size_t size() const { return size_; }

  private:
    struct principal_jobs {
        std::string principal;
        std::deque<job_ptr> jobs;  ///< Never empty.
    };
    using turns = std::list<principal_jobs>;

    turns turns_;
    std::unordered_map<std::string, turns::iterator> by_principal_;
    std::size_t size_ = 0;
};

/// Maximum number of jobs in one batch.
inline constexpr std::size_t jobs_max = 64;

/// The options of a worker.
struct worker_options {
    bool connect_lazily = false;            ///< Connects when the first job arrives, not before.
    bool queue_while_disconnected = false;  ///< Queues jobs until their deadline while PostgreSQL is unreachable.
};

/// A thread with one connection and a queue, whose jobs it runs in order; principals take turns (job_queue). Jobs that
/// join a batch are taken as they wait, up to jobs_max at a time; the worker does not wait for more to arrive.
///
/// While PostgreSQL is unreachable the queue stays empty, unless queue_while_disconnected is set: jobs are refused at
/// once, and the thread tries to connect with growing pauses.
///
/// Threads: member functions may be called from any thread.
/// Limits:  `queued` counts the jobs waiting at all workers of a pool.
class worker {
  public:
    worker(const postgres_config& cfg, queued_jobs& queued, worker_options options = {});
    ~worker();
    worker(const worker&) = delete;
    worker& operator=(const worker&) = delete;

    void start();

    /// Queues the job, or refuses it: storage_unavailable while PostgreSQL is unreachable, overloaded or
    /// too_many_requests (queued_jobs), shutting_down.
    void submit(std::unique_ptr<job> work);

    std::size_t load() const { return load_.load(std::memory_order_relaxed); }

    /// Whether the last attempt to connect failed.
    bool is_disconnected() const;

    /// Returns the order in which a pool chooses its workers for a job, the least first: one that is disconnected
    /// refuses it at once, however small its load.
    std::pair<bool, std::size_t> rank() const { return {is_disconnected(), load()}; }

    /// Refuses queued jobs whose deadline has passed; cuts the connection of work under way that is overdue, and
    /// answers its callers.
    void enforce_deadlines(std::chrono::steady_clock::time_point now);

    /// Accepts no more jobs; the thread ends when the queue is empty.
    void finish();
    /// Refuses the queued jobs and cuts the connection of work under way.
    void abandon();
    bool is_done() const { return done_.load(); }
    void join();

  private:
    void loop();
    std::vector<std::unique_ptr<job>> take_jobs();
    bool ensure_connected();
    void perform(std::vector<std::unique_ptr<job>> work);
    bool wait_for_work();
    std::vector<std::unique_ptr<job>> take_queue();
    void reduce_load(std::size_t jobs);
    void refuse_all(const failure& why);
    void give_up_unresponsive(std::chrono::steady_clock::time_point now);

    queued_jobs& queued_;
    worker_options options_;
    session_slot slot_;

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    job_queue queue_;
    struct under_way {
        deadline until;
        std::shared_ptr<waiting_caller> caller;
    };
    std::vector<under_way> under_way_;
    bool disconnected_ = false;  ///< The last attempt to connect failed.
    std::string cause_;          ///< The cause of that failure, as a clause.
    bool finishing_ = false;
    std::atomic<std::size_t> load_{0};  ///< Number of jobs queued and under way.
    std::atomic<bool> done_{false};
    std::thread thread_;
};

}  // namespace fencegate::pg
