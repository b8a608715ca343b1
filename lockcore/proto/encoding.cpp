#include <lockcore/encoding.hpp>

#include <boost/locale/utf.hpp>

#include <algorithm>
#include <array>

namespace lockcore {
namespace {

constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view base64url_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr auto base64url_values = [] {
    std::array<int, 256> values{};
    values.fill(-1);
    for (std::size_t i = 0; i < base64url_digits.size(); ++i)
        values[static_cast<unsigned char>(base64url_digits[i])] = static_cast<int>(i);
    return values;
}();

/// Returns the value of a hexadecimal digit; -1 for another character.
int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::string to_hex(std::span<const std::byte> bytes) {
    std::string out(2 * bytes.size(), '0');
    for (std::size_t i = 0; i < bytes.size(); ++i)
        write_hex(std::to_integer<std::uint64_t>(bytes[i]), std::span(out).subspan(2 * i, 2));
    return out;
}

void write_hex(std::uint64_t bits, std::span<char> out) {
    for (auto digit = out.rbegin(); digit != out.rend(); ++digit, bits >>= 4U)
        *digit = hex_digits[bits & 15U];
}

bool from_hex(std::string_view text, std::span<std::byte> out) {
    if (text.size() != 2 * out.size() || !is_hex(text)) return false;
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<std::byte>(hex_value(text[2 * i]) * 16 + hex_value(text[2 * i + 1]));
    return true;
}

bool is_hex(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return hex_value(c) >= 0; });
}

bool is_lower_hex(std::string_view text) {
    return text.find_first_not_of(hex_digits) == std::string_view::npos;
}

bool has_control_character(std::string_view text) {
    unsigned char previous = 0;
    return std::ranges::any_of(text, [&previous](char c) {
        const auto byte = static_cast<unsigned char>(c);
        // U+0080 to U+009F are two bytes, the first of which begins no other ones below U+00A0.
        const bool is_control = byte < 0x20 || byte == 0x7f || (previous == 0xc2 && byte >= 0x80 && byte < 0xa0);
        previous = byte;
        return is_control;
    });
}

std::size_t utf8_character_size(std::string_view text) {
    using utf = boost::locale::utf::utf_traits<char>;
    const char* at = text.data();
    if (!boost::locale::utf::is_valid_codepoint(utf::decode(at, text.data() + text.size()))) return 0;
    return static_cast<std::size_t>(at - text.data());
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const auto size = utf8_character_size(text);
        if (size == 0) return false;
        text.remove_prefix(size);
    }
    return true;
}

void append_base64url(std::string& out, std::span<const std::byte> bytes) {
    std::uint32_t bits = 0;
    int count = 0;
    for (const std::byte byte : bytes) {
        bits = bits << 8U | std::to_integer<std::uint32_t>(byte);
        for (count += 8; count >= 6; count -= 6)
            out += base64url_digits[bits >> (count - 6) & 63U];
    }
    if (count > 0) out += base64url_digits[bits << (6 - count) & 63U];
}

std::optional<std::string> from_base64url(std::string_view text) {
    std::string out;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
        const int value = base64url_values[static_cast<unsigned char>(c)];
        if (value < 0) return std::nullopt;
        bits = bits << 6U | static_cast<std::uint32_t>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out += static_cast<char>(bits >> count & 255U);
    }
    return out;
}

}  // namespace lockcore
