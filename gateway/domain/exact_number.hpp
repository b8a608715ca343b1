#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

// A boost::json::value holds integers of 64 bits exactly and every other number as the nearest double. Where the digits
// themselves matter, a number is stored as its text, in a string that begins with U+0000. No string that a caller sends
// begins so: http::parse_json refuses that character.

/// Returns a value that holds a number as the text that the JSON document had for it.
inline boost::json::value exact_number(std::string_view digits) {
    boost::json::string text;
    text.reserve(digits.size() + 1);
    text.push_back('\0');
    text.append(boost::json::string_view(digits.data(), digits.size()));
    return boost::json::value(std::move(text));
}

/// Returns the text of an exact_number; empty for every other value.
inline std::optional<std::string_view> exact_digits(const boost::json::value& value) {
    const auto* text = value.if_string();
    if (text == nullptr || text->empty() || text->front() != '\0') return std::nullopt;
    return std::string_view(text->data() + 1, text->size() - 1);
}

/// Returns whether the value represents a JSON number.
inline bool is_json_number(const boost::json::value& value) {
    return value.is_number() || exact_digits(value).has_value();
}

/// Returns whether every number in a value is finite. Boost.JSON reads 1e999 as infinity and 0e999 as NaN ("not a
/// number"), and writes both as words, which are no JSON.
inline bool has_finite_numbers(const boost::json::value& value) {
    if (const auto* items = value.if_array()) return std::ranges::all_of(*items, has_finite_numbers);
    if (const auto* object = value.if_object())
        return std::ranges::all_of(*object, [](const auto& member) { return has_finite_numbers(member.value()); });
    return !value.is_double() || std::isfinite(value.get_double());
}

/// Returns whether the value represents a JSON string.
inline bool is_json_string(const boost::json::value& value) {
    return value.is_string() && !exact_digits(value);
}

}  // namespace fencegate
