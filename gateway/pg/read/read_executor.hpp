#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/read/read_lane.hpp>
#include <gateway/pg/write/commit_flush.hpp>

#include <boost/asio/awaitable.hpp>

#include <string>

namespace fencegate::pg {

/// Runs reads of tables and functions, on workers of their own: however long one takes, it holds up no write.
///
/// Threads: as write_executor. Errors: errc::storage_unavailable, too_many_requests, overloaded, also where the
/// answers' budget has no room for what was read.
/// Limits:  as many workers as postgres.connections, connected when first needed, which principals share
/// (read_lane.hpp).
class read_executor {
  public:
    read_executor(const postgres_config& cfg, catalog_store& catalogs, memory_budget& answers, commit_flush& flush)
        : catalogs_(catalogs), answers_(answers), flush_(flush), lane_(cfg, table_read_limits(cfg)) {}

    /// Rows of a table or the value of a function, fenced or not; see table_reader.hpp. `principal`: whose share it
    /// takes.
    boost::asio::awaitable<result<read_outcome>> read(std::string principal, read_request request, deadline until);

    read_lane& lane() { return lane_; }

  private:
    catalog_store& catalogs_;
    memory_budget& answers_;
    commit_flush& flush_;
    read_lane lane_;
};

}  // namespace fencegate::pg
