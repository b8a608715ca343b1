#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>
#include <gateway/limits/held_leases.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/address.hpp>

#include <initializer_list>
#include <memory>
#include <string>

namespace fencegate::api {

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
