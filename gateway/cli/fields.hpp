#pragma once

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// A member that is text; empty if it is not.
std::string text(const boost::json::object& from, std::string_view name);

/// A member that is an integer; empty if it is not.
std::optional<std::int64_t> number(const boost::json::object& from, std::string_view name);

/// A member as people read it: text as it is, `-` for null, empty or missing, else its JSON.
std::string shown(const boost::json::object& from, std::string_view name);

}  // namespace fencegate::cli
