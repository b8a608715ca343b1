#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

/// GET /problems/{slug}: a page that explains an error.
http::awaitable_response show_problem(const gateway_services& services, http::request r);

}  // namespace fencegate::api
