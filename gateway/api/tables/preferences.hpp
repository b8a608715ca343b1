#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/http/message.hpp>

#include <cstdint>
#include <optional>
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
    std::optional<bool> representation;                          ///< return=representation: true; minimal: false.
    row_count count = row_count::none;                           ///< count=exact, planned, estimated
    conflict_resolution resolution = conflict_resolution::none;  ///< resolution=merge-duplicates, ignore-duplicates
    bool missing_default = false;                                ///< missing=default; else null.
    std::optional<std::int64_t> max_affected;                    ///< max-affected=N
    std::string applied;  ///< The supported ones, in the form of Preference-Applied.
};

preferences parse_preferences(const http::request& r);

/// Returns the number of a preference such as max-affected=3; empty if it is none.
std::optional<std::int64_t> number_of(const preference& wanted);

}  // namespace fencegate::api
