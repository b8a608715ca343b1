#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/guard_state.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/domain/read_cost.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/pg/read/read_pool.hpp>
#include <gateway/pg/write/group_commit.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::pg {

/// Reads the history, adds events to it and maintains its partitions.
///
/// Threads: as write_executor.
/// Errors:  errc::storage_unavailable, overloaded, too_many_requests.
/// Limits:  reads have three workers of their own, connected when first needed, so that a slow read delays no write;
///          two of them take expensive reads, one for each principal. The empty principal is the gateway itself.
class history_executor {
  public:
    history_executor(const postgres_config& cfg, write_executor& writes, group_commit& flush)
        : writes_(writes), flush_(flush), pool_(cfg, history_read_limits(cfg)) {}

    boost::asio::awaitable<result<history_page>> read(std::string principal, read_cost cost, history_query query,
                                                      deadline until);
    boost::asio::awaitable<result<history_tail>> read_tail(deadline until);
    boost::asio::awaitable<result<std::vector<recorded_lease>>> read_recorded_leases(std::vector<asked_lease> asked,
                                                                                     deadline until);
    boost::asio::awaitable<result<std::vector<history_count>>> summarize(std::string principal,
                                                                         history_summary_query query, deadline until);
    boost::asio::awaitable<result<resource_facts>> read_resource(std::string principal,
                                                                 lockcore::resource_name resource,
                                                                 std::size_t last_events, deadline until);

    /// Adds the items of a batch that the history does not have yet, all or none.
    ///
    /// Out:    the number of items added.
    /// Errors: unprocessable and constraint_violation where the content of an event is at fault. After any other the same
    ///         batch may be sent again, with outcome_unknown where the connection broke.
    boost::asio::awaitable<result<std::size_t>> append(std::shared_ptr<const history_batch> batch, deadline until);

    /// Creates partitions of the history ahead and drops the oldest one that is older than `keep_days` (0: drops none).
    ///
    /// Errors: write_conflict where a lock was not free at once; then nothing was done.
    boost::asio::awaitable<result<history_upkeep>> keep_up(unsigned keep_days, deadline until);

    /// Returns the state of the guard, and records which faults are new and which are gone (fencing.watch_guard).
    boost::asio::awaitable<result<guard_report>> watch_guard(deadline until);

    read_pool& pool() { return pool_; }

  private:
    template <class T>
    boost::asio::awaitable<result<T>> read_durably(std::string principal, read_cost cost, deadline until,
                                                   std::function<T(session&)> read);

    write_executor& writes_;
    group_commit& flush_;
    read_pool pool_;
};

}  // namespace fencegate::pg
