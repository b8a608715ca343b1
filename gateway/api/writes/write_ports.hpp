#pragma once

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/domain/found_outcome.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/write/committed_write.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <string>

namespace fencegate::api {

/// What became of the lease behind a write.
struct release_report {
    bool released = false;         ///< It is over. False: holds are left, or too few nodes answered and it runs out.
    std::uint32_t holds_left = 0;  ///< Of a re-entrant lease; 0 also where that is not known.
};

/// All that a guarded write asks of the leases and of PostgreSQL. The write service knows no other way to them, so that
/// a test can let each step fail.
class write_ports {
  public:
    using time_point = std::chrono::steady_clock::time_point;

    virtual ~write_ports() = default;

    /// See pg::write_executor.
    virtual boost::asio::awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency key,
                                                                       time_point until) = 0;
    virtual boost::asio::awaitable<result<pg::committed_write>> write(write_request request, time_point until) = 0;

    /// See lease_access.hpp.
    virtual result<void> check_room() = 0;
    virtual boost::asio::awaitable<result<seal_decision>> prepare_seal(lockcore::lease_claims claims) = 0;
    virtual void abandon_seal(const lockcore::lease_claims& claims, const seal_decision& decision) = 0;
    virtual boost::asio::awaitable<result<void>> seal_token(lockcore::lease_claims claims, actor acting,
                                                            time_point until) = 0;
    /// Releases a lease that was never used; what cannot be released runs out.
    virtual boost::asio::awaitable<void> give_back(lockcore::lease_claims claims, std::string trace_id) = 0;

    /// See lockcore::lock_manager.
    virtual boost::asio::awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) = 0;
    virtual boost::asio::awaitable<result<void>> require_live(lockcore::lease_claims claims) = 0;
    virtual boost::asio::awaitable<release_report> release(lockcore::lease_claims claims, std::string trace_id) = 0;
};

}  // namespace fencegate::api
