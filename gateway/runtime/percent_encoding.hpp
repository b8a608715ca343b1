#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fencegate::runtime {

/// Percent-encodes every character but letters, digits and `-._~`, for one segment of a path or one value of a query
/// (RFC 3986, 2.3).
std::string percent_encode(std::string_view text);

/// Returns the text with the byte of each `%` and two hexadecimal digits in their place; empty if a `%` has other
/// characters after it.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace fencegate::runtime
