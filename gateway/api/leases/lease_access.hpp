#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <optional>
#include <string_view>

namespace fencegate::api {

/// Whether the caller may use a lease with these claims: its own, or any with the scope `operate`. Errors:
/// errc::forbidden.
result<void> check_holder(const lockcore::lease_claims& claims, const http::request& r);

/// The claims of a lease_id that the caller may use. Errors: errc::lease_not_authentic · errc::forbidden.
result<lockcore::lease_claims> open_lease(services with, std::string_view lease_id, const http::request& r);

/// Whether a new lease may be given: its events need room. Errors: errc::storage_unavailable.
result<void> check_room_for_leases(services with);

/// For a lease that its caller will never use. What cannot be released runs out.
boost::asio::awaitable<void> give_back(services with, lockcore::lease_claims claims, std::string trace_id);

/// What comes before a release that is to seal the token.
struct seal_decision {
    bool seal = false;                             ///< False: other holds are left, which a seal would shut out.
    std::optional<lockcore::closing> closed = {};  ///< To be reopened where the seal fails.
};
/// Closes a lease that others may share to further holds. A lease that a majority has lost is sealed: it has no holds.
/// Errors: errc::no_quorum: nothing was done.
boost::asio::awaitable<result<seal_decision>> prepare_seal(services with, lockcore::lease_claims claims);

/// The seal failed, and the holder goes on.
void abandon_seal(services with, const lockcore::lease_claims& claims, const seal_decision& decision);

/// Raises the fences past the lease's token: its own holder can write no more, the next one can. May come before or
/// behind the release.
/// Errors: those of pg::fence_executor::raise.
boost::asio::awaitable<result<void>> seal_token(services with, lockcore::lease_claims claims, actor by,
                                                std::chrono::steady_clock::time_point until);

/// Who acts, for the history: the caller, under the lease's owner.
actor acting(const lockcore::lease_claims& claims, const http::request& r);

}  // namespace fencegate::api
