#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::cli {

/// `500ms`, `10s`, `2m`, `1h`, `2d`: digits and a unit, nothing else; at most 1000 hours; `0` needs none. Empty for any
/// other text.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// For people, in the unit that fits: `0.4s`, `12.5s`, `3m20s`, `2h05m`.
std::string format_duration(std::chrono::milliseconds length);

}  // namespace fencegate::cli
