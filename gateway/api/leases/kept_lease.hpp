#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <string>

namespace fencegate::api {

/// A lease that lives as long as its caller's connection: the answer is a stream of events (text/event-stream), each
/// with the lease as data.
///
/// `granted` first; `renewed` after every third of the ttl; `lost` the moment it is known, then the stream ends;
/// `released` with a reason where the gateway gives it back itself (it stops, or the lease was held for `max_hold`),
/// then the stream ends. A caller that hangs up releases it.
http::response kept_response(services with, lockcore::lease granted, std::chrono::milliseconds max_hold,
                             std::string trace_id);

}  // namespace fencegate::api
