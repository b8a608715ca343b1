#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog.hpp>
#include <gateway/pg/update_group.hpp>
#include <gateway/pg/worker.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::pg {

class commit_flush;

/// A guarded write and whoever waits for it. run() does it in a transaction of its own.
class write_job : public job {
  public:
    write_job(deadline until, write_request request) : job(until), request_(std::move(request)) {}

    virtual void answer(result<write_outcome> value) noexcept = 0;
    /// Tells that others can see the write, which may not be on disk yet, and gives what waits for the disk in its
    /// place. Empty: it is answered once, when it is there.
    virtual std::unique_ptr<write_job> tell_visible(const write_outcome&) noexcept { return nullptr; }
    void refuse(failure why) noexcept final { answer(std::move(why)); }
    bool shares() const final { return true; }

    const write_request& request() const { return request_; }

    /// Held as long as the write waits beside the others; see side_lanes.
    std::shared_ptr<void> ticket;

  private:
    write_request request_;
};

/// Workers for writes that must not hold up others: those that call a function, which may take any time, and those that
/// were seen to wait for a lock. Each runs alone.
///
/// As long as one of them is here, later writes on its resources come here too, into the same queue: they would wait
/// for its guard row anyway, and so keep their order.
/// Threads: safe.
class side_lanes {
  public:
    side_lanes(const postgres_config& cfg, std::atomic<std::size_t>& queued);

    bool holds(const std::vector<lockcore::resource_name>& resources) const;
    void take(std::unique_ptr<write_job> work);

    const std::vector<std::unique_ptr<worker>>& workers() const { return workers_; }

  private:
    struct place {
        std::size_t lane = 0;
        std::size_t writes = 0;
    };

    std::size_t choose(const std::vector<lockcore::resource_name>& resources) const;
    void leave(const std::vector<lockcore::resource_name>& resources);

    mutable std::mutex mutex_;
    // The workers go first, for their work holds tickets.
    std::map<std::string, place, std::less<>> places_;  ///< By resource; none without writes.
    std::vector<std::unique_ptr<worker>> workers_;
};

/// Most operations in one shared transaction; below session's prepared_max, so that none of its statements is forgotten
/// before it is sent.
inline constexpr std::size_t shared_operations_max = 128;

/// Decides which of the writes that wait share a transaction, and runs them.
///
/// Guards are locked in the order of their resources' names, as everywhere; a transaction therefore takes writes only
/// in that order. A write on several resources that would break it waits for the next one, on the same worker.
/// Threads: one instance serves all workers of a pool.
class write_batcher {
  public:
    write_batcher(catalog_store& catalogs, memory_budget& answers, side_lanes& aside, commit_flush& flush)
        : catalogs_(catalogs), answers_(answers), aside_(aside), flush_(flush) {}

    /// Answers each, or hands it on. All of `work` are write_jobs.
    void run(session_slot& slot, std::vector<std::unique_ptr<job>> work);

  private:
    using jobs = std::vector<std::unique_ptr<write_job>>;

    jobs admit(std::vector<std::unique_ptr<job>> work);
    void run_transaction(session_slot& slot, jobs batch);

    catalog_store& catalogs_;
    memory_budget& answers_;
    side_lanes& aside_;
    commit_flush& flush_;
    group_refusals refused_;
};

/// Takes out of `waiting`, which is sorted by first resource, the writes of the next transaction: as many as fit, in an
/// order in which names never fall.
std::vector<std::unique_ptr<write_job>> next_batch(std::vector<std::unique_ptr<write_job>>& waiting);

}  // namespace fencegate::pg
