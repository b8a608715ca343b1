#pragma once

#include <gateway/http/message.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

enum class conflict_resolution { none, merge, ignore };

/// One of the header Prefer's (RFC 7240), in lower case.
struct preference {
    std::string name;
    std::string
        text;  ///< `name=value`, the value without quotation marks and parameters; the name alone where it has none.
};

/// Those of a list, in order.
std::vector<preference> split_preferences(std::string_view list);

/// What the header Prefer (RFC 7240) asks for, as far as it is known here; the rest is passed over.
struct preferences {
    bool representation = false;                                 ///< return=representation; else minimal.
    bool count = false;                                          ///< count=exact
    conflict_resolution resolution = conflict_resolution::none;  ///< resolution=merge-duplicates, ignore-duplicates
    std::string applied;  ///< Those that were known, as Preference-Applied names them.
};

preferences parse_preferences(const http::request& r);

}  // namespace fencegate::api
