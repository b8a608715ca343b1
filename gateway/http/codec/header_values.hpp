#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Returns which of the offered media types an Accept header prefers (RFC 9110, 12.5.1): the one with the highest q,
/// the earlier offer on a tie.
///
/// Out: an index into `offers`; empty if none is acceptable. An absent or empty header accepts everything.
std::optional<std::size_t> preferred_type(std::string_view accept, std::span<const std::string_view> offers);
inline std::optional<std::size_t> preferred_type(std::string_view accept,
                                                 std::initializer_list<std::string_view> offers) {
    return preferred_type(accept, std::span(offers.begin(), offers.size()));
}

/// Returns whether an Accept-Encoding header asks for gzip (RFC 9110, 12.5.3): by its name or `*`, with a q that is
/// neither 0 nor lower than that of `identity`. An absent or empty header does not.
bool prefers_gzip(std::string_view accept_encoding);

/// Returns a parameter, in lower case, of the media range in an Accept header that names exactly this type.
std::optional<std::string> media_parameter(std::string_view accept, std::string_view type, std::string_view name);

/// Returns whether a Content-Type names this media type; its parameters are ignored.
bool is_media_type(std::string_view content_type, std::string_view type);

/// Returns the charset that a Content-Type names, without its quotes, if it is neither UTF-8 nor its subset US-ASCII;
/// empty otherwise. Several are joined by commas.
std::string find_foreign_charset(std::string_view content_type);

/// One preference of the header Prefer (RFC 7240), in lower case.
struct preference {
    std::string name;
    std::string text;  ///< `name=value`, the value without quotation marks and parameters; `name` if it has no value.
};

/// Returns the preferences of a list, in order.
std::vector<preference> split_preferences(std::string_view list);

/// Returns the number of a preference such as max-affected=3; empty if it is none.
std::optional<std::int64_t> number_of(const preference& wanted);

}  // namespace fencegate::http
