#pragma once

#include <gateway/api/writes/answer_write.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/config.hpp>

namespace fencegate::api {

/// Parses the body and the headers of POST /v1/writes.
///
/// Errors: errc::invalid_request with every fault · errc::unsupported_media_type.
result<write_call> parse_write_body(const http::request& r, const lockcore::config& limits);

}  // namespace fencegate::api
