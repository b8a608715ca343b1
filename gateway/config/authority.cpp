#include <gateway/config/authority.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace fencegate {
namespace {

constexpr std::size_t host_bytes_max = 255;

std::optional<std::uint16_t> parse_port(std::string_view text) {
    unsigned value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc{} || end != text.data() + text.size() || value > 65'535) return std::nullopt;
    return static_cast<std::uint16_t>(value);
}

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

}  // namespace

std::string canonical_address(std::string text) {
    text.resize(std::min(text.find('%'), text.size()));   // the zone, which a link-local address of a connection has
    if (text.find('\0') != std::string::npos) return {};  // inet_pton would read only what is before it
    char shortest[INET6_ADDRSTRLEN];
    in_addr v4{};
    if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return text;
    in6_addr v6{};
    if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return {};
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        std::memcpy(&v4, v6.s6_addr + 12, sizeof v4);
        return inet_ntop(AF_INET, &v4, shortest, sizeof shortest);
    }
    return inet_ntop(AF_INET6, &v6, shortest, sizeof shortest);
}

std::optional<authority> parse_authority(std::string_view text) {
    authority out;
    std::string_view host = text, rest;
    const bool bracketed = text.starts_with('[');
    if (bracketed) {
        const std::size_t end = text.find(']');
        if (end == std::string_view::npos) return std::nullopt;
        host = text.substr(1, end - 1);
        rest = text.substr(end + 1);
    } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
        host = text.substr(0, colon);
        rest = text.substr(colon);
    }
    // A colon without a port is allowed and means the scheme's default port (RFC 3986, 3.2.3).
    if (!rest.empty() && rest != ":") {
        out.port = rest.starts_with(':') ? parse_port(rest.substr(1)) : std::nullopt;
        if (!out.port) return std::nullopt;
    }
    if (host.size() > host_bytes_max) return std::nullopt;
    out.host.resize(host.size());
    std::ranges::transform(host, out.host.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (bracketed) {
        if (out.host.find(':') == std::string::npos || out.host.find('%') != std::string::npos) return std::nullopt;
        out.host = canonical_address(out.host);
    } else {
        if (out.host.ends_with('.')) out.host.pop_back();
        if (out.host.ends_with('.') || !std::ranges::all_of(out.host, is_name_character)) return std::nullopt;
    }
    if (out.host.empty()) return std::nullopt;
    return out;
}

bool is_origin(std::string_view text) {
    const bool secure = text.starts_with("https://");
    if (!secure && !text.starts_with("http://")) return false;
    const std::string_view rest = text.substr(text.find("://") + 3);
    const auto named = parse_authority(rest);
    if (!named || named->port == (secure ? 443 : 80)) return false;
    std::string written = format_url_host(named->host);
    if (named->port) written += ":" + std::to_string(*named->port);
    return rest == written;
}

std::string format_url_host(const std::string& host) {
    return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

bool is_loopback_host(std::string_view host) {
    if (host == "localhost" || host.ends_with(".localhost") || host == "::1") return true;
    in_addr v4{};
    return inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24U) == 127;
}

}  // namespace fencegate
