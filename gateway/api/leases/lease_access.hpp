#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>

#include <boost/json/array.hpp>

#include <string_view>
#include <vector>

namespace fencegate::api {

/// Returns the error code of the API for a failure of the lock manager.
errc meaning_of(lockcore::errc code);

/// Translates a failure of the lock manager, with the facts that docs/http-api.md names: `remaining_ms` and
/// `queue_position` of resource-locked, `nodes` of no-quorum, `named_cell` of misdirected-request, and Retry-After.
failure to_failure(const lockcore::failure& f);

/// Returns the member `nodes` of no-quorum: each node's answer, and why it does not vote.
boost::json::array describe_answers(const std::vector<lockcore::node_answer>& answers);

/// Checks whether the caller has the scope `needed` for every resource of a lease with these claims, and whether the
/// lease is its own; one of another principal needs the scope `operate` for them too.
///
/// Errors: errc::forbidden.
result<void> check_lease_use(const lockcore::lease_claims& claims, scope needed, const http::request& r);

/// Returns the claims of a lease_id that the caller may use for what needs a scope. Errors: errc::lease_not_authentic ·
/// errc::misdirected_request (of another cell) · errc::forbidden (check_lease_use).
result<lockcore::lease_claims> open_lease(const lockcore::lock_manager& locks, std::string_view lease_id, scope needed,
                                          const http::request& r);

/// Returns the actor for the history: the caller, with the lease's owner.
actor make_actor(const lockcore::lease_claims& claims, const http::request& r);

/// Returns whether a request has a lease or a bare token in its headers.
bool has_fencing_headers(const http::request& r);

/// Returns the claims under which a request may write or do a fenced read: those of the lease `lease_id`; without one
/// those of the headers Fencing-Resource (percent-encoded names, separated by commas) and Fencing-Token, which carry a
/// token of another issuer and need the scope `bare_tokens`. The caller needs the scope `writes` for every resource
/// too.
///
/// Errors: errc::fencing_required without either · errc::invalid_request, also for both at once ·
///         errc::lease_not_authentic · errc::forbidden.
result<lockcore::lease_claims> open_lease_or_token(const lockcore::lock_manager& locks, std::string_view lease_id,
                                                   const http::request& r);

}  // namespace fencegate::api
