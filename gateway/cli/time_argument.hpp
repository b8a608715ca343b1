#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// Parses a time that a user gives: a time of RFC 3339; a day, `2026-11-21`, `today` or `yesterday`, which is its first
/// moment in UTC; `now`; or a time before now, `-1h`, as parse_duration takes it.
///
/// Out: the time as RFC 3339 in UTC; empty for any other text.
std::optional<std::string> parse_time_argument(std::string_view text, std::chrono::system_clock::time_point now);

}  // namespace fencegate::cli
