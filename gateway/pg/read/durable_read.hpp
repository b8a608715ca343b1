#pragma once

#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/read/read_lane.hpp>
#include <gateway/pg/read/snapshot_state.hpp>
#include <gateway/pg/write/commit_flush.hpp>

#include <memory>
#include <string>
#include <utility>

namespace fencegate::pg {

/// Refusals that tell nothing of what the database holds.
inline bool tells_nothing(const failure& why) {
    return why.code != errc::unprocessable && why.code != errc::stale_fencing_token;
}

/// Does work in a principal's share of `lane`.
template <class T>
boost::asio::awaitable<result<T>> run_in_lane(read_lane& lane, std::string principal, read_cost cost, work_kind kind,
                                              deadline until, typename session_job<T>::work work) {
    return await_work<T>(kind, until, std::move(work),
                         [&lane, principal = std::move(principal), cost](std::unique_ptr<job> made) {
                             lane.submit(principal, cost, std::move(made));
                         });
}

/// Reads, and gives what was read once all that its snapshot showed is on disk: a crash takes nothing back that a
/// caller was told. Where it is there already, which is asked in the read's own round trip, nobody waits. `read` may be
/// done again where a crash may have taken back what it saw.
template <class T>
boost::asio::awaitable<result<T>> read_durably(read_lane& lane, commit_flush& flush, std::string principal,
                                               read_cost cost, deadline until,
                                               typename session_job<snapshot_of<T>>::work read) {
    for (bool first = true;; first = false) {
        auto seen = co_await run_in_lane<snapshot_of<T>>(lane, principal, cost, work_kind::reads, until, read);
        if (!seen) co_return seen.error();
        const bool nothing_told = !seen->value && tells_nothing(seen->value.error());
        if (nothing_told || flush.is_durable(seen->state)) co_return std::move(seen->value);
        const auto durable = co_await flush.await_durable(seen->state.taken, until);
        if (!durable) co_return durable.error();
        if (*durable) co_return std::move(seen->value);
        if (!first) co_return unavailable("PostgreSQL stopped before what was read was on disk; read it again.");
    }
}

}  // namespace fencegate::pg
