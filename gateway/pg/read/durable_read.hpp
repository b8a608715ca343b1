#pragma once

#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/read/read_pool.hpp>
#include <gateway/pg/read/snapshot_state.hpp>
#include <gateway/pg/write/group_commit.hpp>

#include <memory>
#include <string>
#include <utility>

namespace fencegate::pg {

/// Whether the failure says nothing about the data in the database.
inline bool reveals_no_data(const failure& why) {
    return why.code != errc::unprocessable && why.code != errc::stale_fencing_token;
}

/// Runs work on a worker of `pool`, within the limits of the principal.
template <class T>
boost::asio::awaitable<result<T>> run_in_pool(read_pool& pool, std::string principal, read_cost cost, work_kind kind,
                                              deadline until, typename session_job<T>::work work) {
    return await_work<T>(kind, until, std::move(work),
                         [&pool, principal = std::move(principal), cost](std::unique_ptr<job> made) {
                             pool.submit(principal, cost, std::move(made));
                         });
}

/// Reads, and returns the result once everything that its snapshot showed is on disk, so that no crash undoes what an
/// answer said. The read's own round trip asks whether that is so already; then nothing waits. Where a crash may
/// have undone what it saw, it reads once more.
template <class T>
boost::asio::awaitable<result<T>> read_durably(read_pool& pool, group_commit& flush, std::string principal,
                                               read_cost cost, deadline until,
                                               typename session_job<snapshot_of<T>>::work read) {
    for (bool first = true;; first = false) {
        auto seen = co_await run_in_pool<snapshot_of<T>>(pool, principal, cost, work_kind::reads, until, read);
        if (!seen) co_return seen.error();
        const bool no_data = !seen->value && reveals_no_data(seen->value.error());
        if (no_data || flush.is_durable(seen->state)) co_return std::move(seen->value);
        const auto durable = co_await flush.await_durable(seen->state.taken, until);
        if (!durable) co_return durable.error();
        if (*durable) co_return std::move(seen->value);
        if (!first) co_return unavailable("PostgreSQL stopped before what was read was on disk; read it again.");
    }
}

}  // namespace fencegate::pg
