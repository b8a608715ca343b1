#include <gateway/cli/time_argument.hpp>

#include <gateway/cli/duration.hpp>
#include <gateway/runtime/rfc3339.hpp>

namespace fencegate::cli {

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

}  // namespace fencegate::cli
