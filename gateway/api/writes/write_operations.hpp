#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/http/codec/fields.hpp>

#include <boost/json/value.hpp>

#include <string>
#include <vector>

namespace fencegate::api {

/// The operations of a write. Values are moved out of `given`. What is faulty is noted in `faults` with its JSON
/// pointer; the operations are of use only if nothing was noted.
std::vector<operation> read_operations(boost::json::value& given, const std::string& pointer, http::fault_list& faults);

}  // namespace fencegate::api
