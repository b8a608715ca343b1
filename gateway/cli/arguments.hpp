#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::cli {

/// Parses digits and a unit, `500ms`, `10s`, `2m`, `1h` or `2d`, or `0` alone. At most 1000 hours.
///
/// Out: empty for any other text.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// Formats a duration for a user, in units that fit its length: `0.4s`, `12.5s`, `3m20s`, `2h05m`.
std::string format_duration(std::chrono::milliseconds length);

/// Parses a time that a user gives: a time of RFC 3339; a day, `2026-11-21`, `today` or `yesterday`, which is its first
/// moment in UTC; `now`; or a time before now, `-1h`, as parse_duration takes it.
///
/// Out: the time as RFC 3339 in UTC; empty for any other text.
std::optional<std::string> parse_time_argument(std::string_view text, std::chrono::system_clock::time_point now);

/// The parts of a gateway's URL.
struct gateway_address {
    std::string host;
    std::string base;       ///< Prefix of every path, without a slash at its end; usually empty.
    std::string authority;  ///< Host and port as given.
    bool tls = false;

    /// Returns scheme, host and port.
    std::string origin() const { return (tls ? "https://" : "http://") + authority; }

    /// Returns whether the host is a loopback name or address.
    bool is_loopback() const;
};

/// Parses `http[s]://HOST[:PORT][/BASE]`. Throws std::invalid_argument with the reason.
gateway_address parse_address(const std::string& url);

/// Returns a path with its query string, encoded. Parameters without a value are left out.
std::string make_target(std::string_view path, const std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace fencegate::cli
