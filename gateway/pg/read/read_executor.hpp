#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/read/read_pool.hpp>
#include <gateway/pg/write/group_commit.hpp>

#include <boost/asio/awaitable.hpp>

#include <string>

namespace fencegate::pg {

/// Runs reads of tables and functions on workers of their own, so that a long read delays no write.
///
/// Threads: as write_executor.
/// Errors:  errc::storage_unavailable, too_many_requests, overloaded (also where the rows do
///          not fit into the answers' budget).
/// Limits:  postgres.connections workers, connected when first needed, which principals share (read_pool.hpp).
class read_executor {
  public:
    read_executor(const postgres_config& cfg, catalog_store& catalogs, memory_budget& answers, group_commit& flush)
        : catalogs_(catalogs), answers_(answers), flush_(flush), pool_(cfg, table_read_limits(cfg)) {}

    /// Reads rows of a table or the value of a function, fenced or not; see table_reader.hpp. The read counts against
    /// the limits of `principal`.
    boost::asio::awaitable<result<read_outcome>> read(std::string principal, read_request request, deadline until);

    read_pool& pool() { return pool_; }

  private:
    catalog_store& catalogs_;
    memory_budget& answers_;
    group_commit& flush_;
    read_pool pool_;
};

}  // namespace fencegate::pg
