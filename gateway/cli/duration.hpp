#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// Parses digits and a unit, `500ms`, `10s`, `2m`, `1h` or `2d`, or `0` alone. At most 1000 hours.
///
/// Out: empty for any other text.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Formats a duration for a user, in units that fit its length: `0.4s`, `12.5s`, `3m20s`, `2h05m`.
std::string format_duration(std::chrono::milliseconds length);

}  // namespace fencegate::cli
