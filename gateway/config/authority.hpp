#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

/// A host and an optional port: the value of a header Host, of an Origin without its scheme, or of an entry of
/// http.allowed_hosts.
struct authority {
    /// Lower case, without a trailing dot; an IP address in its shortest form, IPv6 without brackets.
    std::string host;
    std::optional<std::uint16_t> port;
    friend bool operator==(const authority&, const authority&) = default;
};

/// Parses `host`, `host:port`, `[IPv6]` and `[IPv6]:port` (RFC 3986, 3.2.2).
///
/// Out: empty if the text is none of them, has user information, or is longer than a host name may be.
std::optional<authority> parse_authority(std::string_view text);

/// Returns whether a text is an origin as browsers send it (RFC 6454, 6.2): `http://` or `https://` and a host, with
/// the port unless it is that of the scheme, in the form in which every browser writes it.
bool is_origin(std::string_view text);

/// Returns whether `host` is localhost, a name below it (RFC 6761, 6.3), in 127.0.0.0/8, or ::1.
bool is_loopback_host(std::string_view host);

/// Returns a host as URLs have it: an IPv6 address in brackets.
std::string format_url_host(const std::string& host);

/// Returns an IP address in its shortest form without its zone, an IPv4-mapped address as IPv4; empty if the text is no
/// IP address.
std::string canonical_address(std::string text);

}  // namespace fencegate
