#include <gateway/cli/duration.hpp>

#include <charconv>
#include <cstdio>
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

}  // namespace fencegate::cli
