#pragma once

#include <gateway/domain/principal_share.hpp>
#include <gateway/pg/executor/job.hpp>

#include <cstddef>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace fencegate::pg {

/// Counts the jobs that wait at all workers of a pool. A principal has at most half of the places. The jobs of the
/// gateway itself, the empty principal, take no place of a principal, and have own_places more.
///
/// Threads: safe.
class queued_jobs {
  public:
    explicit queued_jobs(std::size_t most) : most_(most) {}

    /// Counts a job. Out: why it has no place: overloaded, or too_many_requests where the principal has its share.
    std::optional<failure> try_add(const std::string& principal);
    void remove(const std::string& principal);
    std::size_t value() const;

  private:
    static constexpr std::size_t own_places = 64;

    const std::size_t most_;
    mutable std::mutex mutex_;
    std::size_t value_ = 0;
    std::size_t of_gateway_ = 0;  ///< Those of the gateway itself, counted in value_ too.
    principal_uses by_principal_;
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

}  // namespace fencegate::pg
