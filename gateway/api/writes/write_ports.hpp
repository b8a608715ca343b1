#pragma once

#include <gateway/api/leases/lease_seal.hpp>
#include <gateway/domain/found_outcome.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/write/committed_write.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <string>

namespace fencegate::api {

/// The result of the release after a write.
struct release_report {
    bool released = false;         ///< False: holds are left, or too few nodes answered and the lease expires.
    std::uint32_t holds_left = 0;  ///< For a re-entrant lease; 0 also if unknown.
};

/// The interface of the write service to leases and PostgreSQL. The service uses nothing else, so that a test can make
/// each step fail.
class write_ports {
  public:
    using time_point = std::chrono::steady_clock::time_point;

    virtual ~write_ports() = default;

    /// See pg::write_executor.
    virtual boost::asio::awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency_key key,
                                                                       time_point until) = 0;
    virtual boost::asio::awaitable<result<pg::committed_write>> write(write_request request, time_point until) = 0;

    /// What the seal of a lease's token uses.
    virtual seal_ports& seals() = 0;

    /// See lockcore::lock_manager. The limits of the caller are checked first (admit_acquisition).
    virtual boost::asio::awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) = 0;
    virtual boost::asio::awaitable<result<void>> require_live(lockcore::lease_claims claims) = 0;
    virtual boost::asio::awaitable<release_report> release(lockcore::lease_claims claims, std::string trace_id) = 0;
    /// See lease_access.hpp.
    virtual boost::asio::awaitable<void> release_abandoned_lease(lockcore::lease_claims claims,
                                                                 std::string trace_id) = 0;
};

}  // namespace fencegate::api
