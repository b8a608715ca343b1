#pragma once

#include <gateway/domain/memory_budget.hpp>
#include <gateway/pg/executor/worker.hpp>
#include <gateway/pg/write/write_batch.hpp>
#include <gateway/pg/write/write_session.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::pg {

/// Runs the write by itself and answers it.
void run_and_answer(write_session& session, catalog_source& catalogs, memory_budget& answers,
                    pending_write& write) noexcept;

/// Workers for writes that must not hold up others: those that call a function, which may take any time, and those that
/// were seen to wait for a lock. Each runs by itself.
///
/// As long as one of them is here, later writes on its resources come here too, into the same queue: they would wait
/// for its guard row anyway, and so keep their order.
/// Threads: safe.
class isolated_write_executor {
  public:
    isolated_write_executor(const postgres_config& cfg, std::atomic<std::size_t>& queued, catalog_store& catalogs,
                            memory_budget& answers);

    bool holds(const std::vector<lockcore::resource_name>& resources) const;
    void submit(pending_write write);

    const std::vector<std::unique_ptr<worker>>& workers() const { return workers_; }

  private:
    struct place {
        std::size_t worker = 0;
        std::size_t writes = 0;
    };

    std::size_t choose_worker(const std::vector<lockcore::resource_name>& resources) const;
    void leave(const std::vector<lockcore::resource_name>& resources);

    catalog_store& catalogs_;
    memory_budget& answers_;
    mutable std::mutex mutex_;
    // The workers go first, for their work holds tickets.
    std::map<std::string, place, std::less<>> places_;  ///< By resource; none without writes.
    std::vector<std::unique_ptr<worker>> workers_;
};

}  // namespace fencegate::pg
