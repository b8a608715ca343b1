#include <gateway/cli/arguments.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::hours duration_max{1000};

std::optional<milliseconds> parse_unit(std::string_view name) {
    if (name == "ms") return milliseconds{1};
    if (name == "s") return std::chrono::seconds{1};
    if (name == "m") return std::chrono::minutes{1};
    if (name == "h") return std::chrono::hours{1};
    if (name == "d") return std::chrono::hours{24};
    return std::nullopt;
}

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
    if (text == "0") return milliseconds{0};
    std::uint32_t count = 0;
    const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (fault != std::errc{}) return std::nullopt;
    const auto unit = parse_unit(text.substr(static_cast<std::size_t>(rest - text.data())));
    if (!unit || count > duration_max / *unit) return std::nullopt;
    return count * *unit;
}

std::string format_duration(milliseconds length) {
    const auto count = length.count();
    char text[32];
    if (length < std::chrono::minutes{1}) {
        std::snprintf(text, sizeof text, "%.1fs", static_cast<double>(count) / 1000);
    } else if (length < std::chrono::hours{1}) {
        std::snprintf(text, sizeof text, "%dm%02ds", static_cast<int>(count / 60'000),
                      static_cast<int>(count / 1000 % 60));
    } else {
        std::snprintf(text, sizeof text, "%lldh%02dm", static_cast<long long>(count / 3'600'000),
                      static_cast<int>(count / 60'000 % 60));
    }
    return text;
}

std::optional<std::string> parse_time_argument(std::string_view text, std::chrono::system_clock::time_point now) {
    using runtime::to_rfc3339;
    // The gateway reads all digits of a whole time.
    if (runtime::parse_rfc3339(text)) return std::string(text);
    const auto day = runtime::parse_rfc3339(std::string(text) + "T00:00:00Z");
    if (day) return to_rfc3339(*day);
    const auto today = std::chrono::floor<std::chrono::days>(now);
    if (text == "now") return to_rfc3339(now);
    if (text == "today") return to_rfc3339(today);
    if (text == "yesterday") return to_rfc3339(today - std::chrono::days(1));
    if (!text.starts_with('-')) return std::nullopt;
    const auto length = parse_duration(text.substr(1));
    if (!length) return std::nullopt;
    return to_rfc3339(now - *length);
}

namespace urls = boost::urls;

gateway_address parse_address(const std::string& url) {
    const auto parsed = urls::parse_uri(url);
    if (!parsed) throw std::invalid_argument("is not a URL such as http://127.0.0.1:8080");
    if (parsed->scheme() != "http" && parsed->scheme() != "https")
        throw std::invalid_argument("must begin with http:// or https://");
    if (parsed->has_userinfo() || parsed->has_query() || parsed->has_fragment() || parsed->host_address().empty())
        throw std::invalid_argument("must be http[s]://HOST[:PORT][/BASE], without user, query or fragment");
    gateway_address out;
    out.tls = parsed->scheme() == "https";
    out.host = parsed->host_address();
    out.base = std::string(parsed->encoded_path());
    while (out.base.ends_with('/'))
        out.base.pop_back();
    out.authority = std::string(parsed->encoded_host_and_port());
    return out;
}

bool gateway_address::is_loopback() const {
    return is_loopback_host(host);
}

std::string make_target(std::string_view path, const std::vector<std::pair<std::string, std::string>>& parameters) {
    std::string out(path);
    char separator = '?';
    for (const auto& [name, value] : parameters) {
        if (value.empty()) continue;
        out += separator;
        out += name;
        out += '=';
        out += runtime::percent_encode(value);
        separator = '&';
    }
    return out;
}

}  // namespace fencegate::cli
