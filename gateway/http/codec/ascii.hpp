#pragma once

#include <algorithm>
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

}  // namespace fencegate::http
