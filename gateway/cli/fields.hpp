#pragma once

#include <boost/json/object.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// Parses a text in JSON.
///
/// Out: an empty object if it is no object.
boost::json::object parse_object(std::string_view text);

/// Returns a member that is a string; empty if it is not.
std::string get_text(const boost::json::object& object, std::string_view name);

/// Returns a member that is an integer; empty if it is not.
std::optional<std::int64_t> get_integer(const boost::json::object& object, std::string_view name);

/// Returns a member that is an integer, as milliseconds; empty if it is not.
///
/// Limits: a hundred years in either direction, which can be added to any time: a gateway that is not what it should be may
///         send any number.
std::optional<std::chrono::milliseconds> get_duration(const boost::json::object& object, std::string_view name);

/// Returns a member for display: a string as it is, `-` for null, empty or missing, else its JSON.
std::string display_text(const boost::json::object& object, std::string_view name);

}  // namespace fencegate::cli
