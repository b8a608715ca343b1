#include <gateway/api/history_cursor.hpp>

#include <charconv>

namespace fencegate::api {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t cursor_bytes_max = 64;
/// The first moment of the year 10000, in microseconds since 1970.
constexpr std::int64_t at_end = 253'402'300'800'000'000;

std::string encode(std::string_view bytes) {
    std::string out;
    std::uint32_t bits = 0;
    unsigned count = 0;
    for (const char c : bytes) {
        bits = (bits << 8U) | static_cast<unsigned char>(c);
        count += 8;
        while (count >= 6) {
            count -= 6;
            out += alphabet[(bits >> count) & 63U];
        }
    }
    if (count > 0) out += alphabet[(bits << (6 - count)) & 63U];
    return out;
}

std::optional<std::string> decode(std::string_view text) {
    std::string out;
    std::uint32_t bits = 0;
    unsigned count = 0;
    for (const char c : text) {
        const std::size_t value = alphabet.find(c);
        if (value == std::string_view::npos) return std::nullopt;
        bits = (bits << 6U) | static_cast<std::uint32_t>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out += static_cast<char>((bits >> count) & 255U);
    }
    return out;
}

}  // namespace

std::string to_text(history_cursor c) {
    return encode((c.ascending ? "asc:" : "desc:") + std::to_string(c.last.at_us) + ":" + std::to_string(c.last.id));
}

std::optional<history_cursor> parse_cursor(std::string_view text) {
    if (text.empty() || text.size() > cursor_bytes_max) return std::nullopt;
    const auto bytes = decode(text);
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
    // One spelling a cursor: whatever does not come out again as it went in was not made here.
    if (to_text(out) != text) return std::nullopt;
    return out;
}

}  // namespace fencegate::api
