#pragma once

#include <gateway/domain/read_cost.hpp>
#include <gateway/pg/executor/worker.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::pg {

/// How many reads may run and wait.
struct read_limits {
    std::size_t workers = 1;
    std::size_t running_per_principal = 1;
    std::size_t running_expensive = 1;  ///< Of all principals.
    std::size_t running_expensive_per_principal = 1;
    std::size_t waiting = 1;  ///< More are refused with overloaded.
    std::size_t waiting_per_principal = 1;
    std::size_t waiting_expensive_per_principal = 1;
};

/// Of tables and functions: postgres.connections workers, of which a principal takes all but a quarter.
read_limits table_read_limits(const postgres_config& cfg);
/// Of the history: three workers; a principal takes two of them, and what is expensive two in all, one a principal.
read_limits history_read_limits(const postgres_config& cfg);

/// Workers for reads, shared by principals in turn: a principal runs at most its share of them, and expensive reads run
/// on a part of them, so that neither holds up a cheap read of another. A worker gets one read at a time; the others
/// wait here.
///
/// Errors:  too_many_requests where a principal has too many waiting, overloaded where all have; those of
///          worker::submit.
/// Limits:  read_limits. The empty principal, which is the gateway itself, has no share.
/// Threads: safe.
class read_lane {
  public:
    read_lane(const postgres_config& cfg, read_limits limits);
    read_lane(const read_lane&) = delete;
    read_lane& operator=(const read_lane&) = delete;

    void submit(const std::string& principal, read_cost cost, std::unique_ptr<job> work);

    /// Refuses reads whose time was over before they began.
    void enforce_deadlines(std::chrono::steady_clock::time_point now);

    std::size_t waiting() const;
    const std::vector<std::unique_ptr<worker>>& workers() const { return workers_; }

  private:
    struct waiting_read {
        read_cost cost;
        std::unique_ptr<job> work;
    };
    struct share {
        std::string principal;
        std::deque<waiting_read> waiting;
        std::size_t waiting_expensive = 0;
        std::size_t running = 0;
        std::size_t running_expensive = 0;
    };
    class running_read;

    std::optional<failure> admit(const share& of, read_cost cost) const;
    share& share_of(const std::string& principal);
    std::optional<std::size_t> idle_worker() const;
    std::unique_ptr<running_read> next();
    void dispatch();
    void leave(share& of, read_cost cost, std::size_t at);

    const read_limits limits_;
    std::atomic<std::size_t> queued_{0};  ///< At the workers themselves, one each at most.
    mutable std::mutex mutex_;
    std::list<share> shares_;  ///< The one that was served longest ago first. None without reads.
    std::vector<bool> busy_;   ///< By worker.
    std::size_t waiting_ = 0;
    std::size_t running_expensive_ = 0;
    bool dispatching_ = false;
    std::vector<std::unique_ptr<worker>> workers_;  ///< Go first: their work refers to the rest.
};

}  // namespace fencegate::pg
