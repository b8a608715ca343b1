#pragma once

#include <gateway/api/services.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

namespace fencegate::api {

/// Acquires a lease on any one of `wanted.resources`: on one that is free, or on the first that becomes free within
/// `wanted.wait`. The caller waits in the queue of each of them. A second lease that is granted at the same moment is
/// released at once. The lease is never a further hold of a named owner, but that of an idempotency key if it is known.
///
/// Errors: those of lock_manager::acquire; resource_locked and no_quorum only if they are so for all resources.
/// Cancel: (terminal) leaves every queue; a grant is returned.
boost::asio::awaitable<lockcore::result<lockcore::lease>> acquire_any(const lease_services& services,
                                                                      lockcore::acquire_request wanted);

/// Cancels the acquire_any() with the same idempotency key, holder and resources (lock_manager::cancel).
boost::asio::awaitable<lockcore::result<void>> cancel_any(lockcore::lock_manager& locks,
                                                          lockcore::acquire_request wanted);

}  // namespace fencegate::api
