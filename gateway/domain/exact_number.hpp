#pragma once

#include <boost/json/value.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

// A boost::json::value keeps integers of 64 bits, and of every other number the nearest double. Where the digits
// themselves matter, a number is kept as its text, in a string that begins with U+0000. No string of a caller does:
// http::parse_json refuses that character.

/// A number by its text, as JSON wrote it.
inline boost::json::value exact_number(std::string_view digits) {
    boost::json::string kept;
    kept.reserve(digits.size() + 1);
    kept.push_back('\0');
    kept.append(boost::json::string_view(digits.data(), digits.size()));
    return boost::json::value(std::move(kept));
}

/// The text of an exact_number; empty for every other value.
inline std::optional<std::string_view> exact_digits(const boost::json::value& value) {
    const auto* text = value.if_string();
    if (text == nullptr || text->empty() || text->front() != '\0') return std::nullopt;
    return std::string_view(text->data() + 1, text->size() - 1);
}

/// Whether it is a number for JSON.
inline bool is_json_number(const boost::json::value& value) {
    return value.is_number() || exact_digits(value).has_value();
}

/// Whether it is a string for JSON.
inline bool is_json_string(const boost::json::value& value) {
    return value.is_string() && !exact_digits(value);
}

}  // namespace fencegate
