#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /v1/resources/{resource}: the fence, the live lease, counts by event and the last events; with
/// `?fencing_token=N` the story of one token.
boost::asio::awaitable<http::response> show_resource(services with, http::request r);

}  // namespace fencegate::api
