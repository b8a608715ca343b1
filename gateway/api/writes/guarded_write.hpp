#pragma once

#include <gateway/api/leases/lease_lifecycle.hpp>
#include <gateway/api/services.hpp>
#include <gateway/api/writes/waiting_writes.hpp>
#include <gateway/api/writes/write_body.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/awaitable.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

/// The interface of the write service to leases and PostgreSQL. The service uses nothing else, so that a test can make
/// each step fail.
class write_ports {
  public:
    using time_point = std::chrono::steady_clock::time_point;

    virtual ~write_ports() = default;

    /// See pg::outcome_lookup::find, and pg::write_executor for the others.
    virtual boost::asio::awaitable<result<std::optional<write_outcome>>> find_outcome(std::string principal,
                                                                                      idempotency_key key,
                                                                                      time_point until) = 0;
    virtual boost::asio::awaitable<result<pg::committed_write>> write(write_request request, time_point until) = 0;
    virtual boost::asio::awaitable<std::vector<result<pg::committed_write>>> write_together(
        std::vector<pg::timed_write> writes) = 0;
    virtual boost::asio::awaitable<std::optional<failure>> require_durable(time_point server_ran_at,
                                                                           time_point until) = 0;

    /// What the seal of a lease's token uses.
    virtual seal_ports& seals() = 0;

    /// See lockcore::lock_manager. The limits of the caller are checked first (admit_acquisition).
    virtual boost::asio::awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) = 0;
    virtual boost::asio::awaitable<result<void>> require_live(lockcore::lease_claims claims) = 0;
    virtual boost::asio::awaitable<release_report> release(lockcore::lease_claims claims, std::string origin) = 0;
};

/// Executes a guarded write under a lease of the caller, or under a lease of its own, which it acquires and releases.
///
/// Out:    a lease of the caller is released only after the write was applied and is on disk. An own lease is released
///         as soon as the write is visible to others or has failed; the answer waits for the disk. If it is unknown
///         whether the write was committed, an own lease is left to expire. A re-entrant lease is sealed with its last
///         hold, and accepts no further hold from before the write on. Writes of `waiting` that could wait for the same
///         lease are executed with this one, in one transaction.
/// Errors: those of the ports, with the write_id if the write was made.
/// Cancel: while it waits for an own lease; then it leaves nothing behind and has written nothing. Otherwise none.
boost::asio::awaitable<result<write_report>> execute_write(write_ports& ports, waiting_writes& waiting,
                                                           write_context context);

/// Executes a guarded write of a request: opens or acquires the lease, writes, and releases the lease.
///
/// In:     `r` is the request of the write: its principal, its deadline (without the wait for a lease), and the parts
///         that the fingerprint of an idempotency key covers.
/// Out:    see execute_write.
/// Cancel: see execute_write.
boost::asio::awaitable<result<write_report>> run_write(const write_services& services, write_call call,
                                                       http::request r);

/// Adds the header Idempotency-Replayed to the answer to a write that an earlier call applied.
void add_replayed_header(http::response& answer, const write_report& done);

}  // namespace fencegate::api
