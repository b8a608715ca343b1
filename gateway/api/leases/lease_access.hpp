#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>
#include <gateway/limits/held_leases.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/json/array.hpp>

#include <initializer_list>
#include <memory>
#include <string>
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

/// Checks whether the event buffer accepts the events of a new lease of the principal (audit.buffer_max); of an empty
/// principal, whether it does of any.
///
/// Errors: errc::storage_unavailable.
result<void> check_event_capacity(const audit::event_sink& events, const limits::limiter& limiter,
                                  const std::string& principal = {});

/// Checks the space for events and the limits of a principal that is about to acquire a lease, and lets the request
/// check those of waiting, and of its address, before it waits. The request of a kept lease has to have the place of a
/// stream already.
///
/// Out:    what counts the acquisition; the caller keeps it until that has ended.
/// Errors: errc::too_many_requests (limits.principal.leases_max) · those of check_event_capacity.
result<limits::held_leases::acquisition> admit_acquisition(const lease_services& services,
                                                           const std::shared_ptr<limits::caller>& caller,
                                                           const boost::asio::ip::address& peer,
                                                           lockcore::acquire_request& request);

/// Takes the places of a stream: those of the given kinds of its principal, and among the requests that wait or stream.
///
/// Out:    keeps the places until it is destroyed; null without a principal.
/// Errors: errc::too_many_requests.
result<std::shared_ptr<void>> admit_stream(limits::limiter& limiter, const http::request& r,
                                           std::initializer_list<limits::use> kinds);

/// Releases a lease that its caller never received or no longer uses. If that fails, the lease expires.
boost::asio::awaitable<void> release_abandoned_lease(lockcore::lock_manager& locks, lockcore::lease_claims claims,
                                                     std::string trace_id);

}  // namespace fencegate::api
