#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::runtime {

/// Returns `2026-11-21T10:00:09.894Z`: UTC, truncated to milliseconds.
std::string to_rfc3339(std::chrono::system_clock::time_point at);

/// Parses a date-time of RFC 3339 with up to nine fractional digits and any offset. Leap seconds are not supported.
///
/// Out: empty if the text is not such a date-time.
std::optional<std::chrono::system_clock::time_point> parse_rfc3339(std::string_view text);

/// Returns `Sat, 21 Nov 2026 10:00:09 GMT`, for the header Date (RFC 9110, 5.6.7).
std::string to_http_date(std::chrono::system_clock::time_point at);

}  // namespace fencegate::runtime
