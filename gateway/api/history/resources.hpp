#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/resources/{resource}: the fence, the live lease, counts by event and the last events; with
/// `?fencing_token=N` the timeline of one token's lease.
http::awaitable_response show_resource(const gateway_services& services, http::request r);

}  // namespace fencegate::api
