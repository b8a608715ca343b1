#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/awaitable.hpp>

namespace fencegate::api {

/// Returns the answer for a caller that watches a lease without keeping it: a stream of events (text/event-stream), each
/// with the lease as data. The first event is `held`; the stream ends with `lost` or `released` as soon as the lease has
/// ended, or without them when the caller's credential ends or the gateway stops. A comment is sent each 10 s.
///
/// Errors: as a response: errc::lease_lost · no_quorum · too_many_requests.
http::awaitable_response watch_lease(const gateway_services& services, lockcore::lease_claims claims, http::request r);

}  // namespace fencegate::api
