#pragma once

#include <string>
#include <string_view>

namespace fencegate::runtime {

/// Percent-encodes every character but letters, digits and `-._~`, for one segment of a path or one value of a query
/// (RFC 3986, 2.3).
std::string percent_encode(std::string_view text);

}  // namespace fencegate::runtime
