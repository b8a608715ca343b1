#pragma once

#include <gateway/api/writes/guarded_write.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/config.hpp>

#include <boost/json/value.hpp>

#include <string>
#include <vector>

namespace fencegate::api {

/// Reads the operations of a write and moves their values out of `given`.
///
/// Errors: faults are added to `faults` with their JSON pointers; the operations are then unusable.
std::vector<operation> read_operations(boost::json::value& given, const std::string& pointer, http::fault_list& faults);

/// Moves the values out of an object whose keys are the names of columns or arguments.
///
/// Faults: more than 1,600 names, an empty one, one of more than name_bytes_max bytes; then nothing is taken.
std::vector<assignment> take_assignments(boost::json::object& given, const std::string& pointer,
                                         http::fault_list& faults);

/// Parses the body and the headers of POST /v1/writes.
///
/// Errors: errc::invalid_request with every fault · errc::unsupported_media_type.
result<write_call> parse_write_body(const http::request& r, const lockcore::config& limits);

}  // namespace fencegate::api
