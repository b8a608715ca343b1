#pragma once

#include <gateway/domain/table_read.hpp>
#include <gateway/http/message.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace fencegate::api {

enum class conflict_resolution { none, merge, ignore };

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

}  // namespace fencegate::api
