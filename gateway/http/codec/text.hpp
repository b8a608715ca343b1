#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Returns an upper-case letter of ASCII in lower case, and any other byte as it is.
constexpr char to_lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Returns the text with the upper-case letters of ASCII in lower case.
inline std::string to_lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](char c) { return to_lower(c); });
    return out;
}

/// Compares without regard to the case of ASCII letters, as RFC 9110 compares names of fields, media types and codings.
constexpr bool equals_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return to_lower(x) == to_lower(y); });
}

/// Removes the optional whitespace (RFC 9110, 5.6.3: blanks and tabs) around the value of a field or a part of it.
constexpr std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Returns the text with U+FFFD for each byte that is no part of a valid character.
std::string replace_invalid_utf8(std::string text);

/// Returns as many whole characters of the text's beginning as have at most `bytes` bytes.
std::string_view cut_utf8(std::string_view text, std::size_t bytes);

/// Returns the JSON pointer (RFC 6901) of a member or element of the value at `pointer`.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_pointer(std::string_view pointer, std::size_t index);

/// Shortens a pointer of more than 1 KiB: its beginning, in whole characters, and "…".
std::string shorten_pointer(std::string pointer);

}  // namespace fencegate::http
