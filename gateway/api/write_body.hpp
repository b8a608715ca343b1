#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>

#include <string>
#include <vector>

namespace fencegate::api {

/// The body of POST /v1/writes, and what headers add to it.
struct write_body {
    std::string lease_id;
    std::vector<operation> operations;
    bool return_rows = false;
    bool require_live = false;
};

/// Errors: errc::invalid_request with every fault · errc::fencing_required where no lease is sent ·
/// errc::unsupported_media_type.
result<write_body> parse_write_body(const http::request& r);

}  // namespace fencegate::api
