#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

#include <string_view>

namespace fencegate::api {

/// Returns gateway/api/service/openapi.json, which is embedded at build time.
std::string_view openapi_document();

/// GET /openapi.json
http::awaitable_response show_openapi(const state_services& services, http::request r);

/// GET /console: the page of the web console. Only the page itself reads the query.
http::awaitable_response show_console(const state_services& services, http::request r);

/// GET /console/{file}: its style sheet and scripts, which are embedded in the binary. The scripts fetch the data with
/// the viewer's API key.
http::awaitable_response show_console_file(const state_services& services, http::request r);

/// GET /problems/{slug}: a page that explains an error.
http::awaitable_response show_problem(const state_services& services, http::request r);

}  // namespace fencegate::api
