#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /console: the page of the web console. Only the page itself reads the query.
http::awaitable_response show_console(const gateway_services& services, http::request r);

/// GET /console/{file}: its style sheet and scripts, which are embedded in the binary. The scripts fetch the data with
/// the viewer's API key.
http::awaitable_response show_console_file(const gateway_services& services, http::request r);

}  // namespace fencegate::api
