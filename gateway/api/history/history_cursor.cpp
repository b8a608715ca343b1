#include <gateway/api/history/history_cursor.hpp>

#include <lockcore/encoding.hpp>

#include <charconv>
#include <span>

namespace fencegate::api {
namespace {

constexpr std::size_t cursor_bytes_max = 64;
/// The beginning of the year 10000, in microseconds since 1970.
constexpr std::int64_t at_end = 253'402'300'800'000'000;

}  // namespace

std::string to_text(history_cursor c) {
    const std::string text =
        (c.ascending ? "asc:" : "desc:") + std::to_string(c.last.at_us) + ":" + std::to_string(c.last.id);
    std::string out;
    lockcore::append_base64url(out, std::as_bytes(std::span(text)));
    return out;
}

std::optional<history_cursor> parse_cursor(std::string_view text) {
    if (text.empty() || text.size() > cursor_bytes_max) return std::nullopt;
    const auto bytes = lockcore::from_base64url(text);
    if (!bytes) return std::nullopt;
    const std::size_t colon = bytes->find(':');
    if (colon == std::string::npos) return std::nullopt;
    history_cursor out;
    const char* last = bytes->data() + bytes->size();
    const auto [middle, no_time] = std::from_chars(bytes->data() + colon + 1, last, out.last.at_us);
    if (no_time != std::errc{} || middle == last || *middle != ':') return std::nullopt;
    const auto [end, no_id] = std::from_chars(middle + 1, last, out.last.id);
    if (no_id != std::errc{} || end != last || out.last.id < 0) return std::nullopt;
    if (out.last.at_us < 0 || out.last.at_us >= at_end) return std::nullopt;
    out.ascending = bytes->starts_with("asc:");
    // Each cursor has one spelling: a text that to_text would not produce is refused.
    if (to_text(out) != text) return std::nullopt;
    return out;
}

}  // namespace fencegate::api
