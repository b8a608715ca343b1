#pragma once

#include <gateway/http/message.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

enum class conflict_resolution { none, merge, ignore };

/// One preference of the header Prefer (RFC 7240), in lower case.
struct preference {
    std::string name;
    std::string text;  ///< `name=value`, the value without quotation marks and parameters; `name` if it has no value.
};

/// Returns the preferences of a list, in order.
std::vector<preference> split_preferences(std::string_view list);

/// The preferences of a request that tables support; others are ignored.
struct preferences {
    bool representation = false;                                 ///< return=representation; else minimal.
    bool count = false;                                          ///< count=exact
    conflict_resolution resolution = conflict_resolution::none;  ///< resolution=merge-duplicates, ignore-duplicates
    std::string applied;  ///< The supported ones, in the form of Preference-Applied.
};

preferences parse_preferences(const http::request& r);

}  // namespace fencegate::api
