#pragma once

#include <gateway/api/writes/carry_out_write.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/config.hpp>

namespace fencegate::api {

/// The body of POST /v1/writes, and what headers add to it.
///
/// Errors: errc::invalid_request with every fault · errc::unsupported_media_type.
result<write_call> parse_write_body(const http::request& r, const lockcore::config& limits);

}  // namespace fencegate::api
