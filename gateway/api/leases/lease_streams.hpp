#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/awaitable.hpp>

#include <memory>
#include <string>

namespace fencegate::api {

/// Returns the answer for a kept lease, which the gateway renews while its caller's connection is open and the caller's
/// system has acknowledged the event before: a stream of events (text/event-stream), each with the lease as data.
///
/// The first event is `granted`; `renewed` follows after every third of the ttl. The stream ends with `lost` as soon as
/// that is known, or with `released` and a reason if the gateway releases the lease itself (the gateway stops, or the
/// lease was held for `max_hold`). A caller that hangs up releases the lease.
///
/// In: `stream` keeps the places of the stream, until that ends.
http::response kept_response(lockcore::lock_manager& locks, lockcore::lease granted, std::chrono::milliseconds max_hold,
                             std::string trace_id, std::shared_ptr<void> stream);

/// Returns the answer for a caller that watches a lease without keeping it: a stream of events (text/event-stream),
/// each with the lease as data. The first event is `held`; the stream ends with `lost` or `released` as soon as the
/// lease has ended, or without them when the caller's credential ends or the gateway stops. A comment is sent each 10
/// s.
///
/// Errors: errc::lease_lost · no_quorum · too_many_requests.
http::awaitable_response watch_lease(const lease_services& services, lockcore::lease_claims claims, http::request r);

}  // namespace fencegate::api
