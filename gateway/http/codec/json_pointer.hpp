#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Returns the JSON pointer (RFC 6901) of a member or element of the value at `pointer`.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_pointer(std::string_view pointer, std::size_t index);

}  // namespace fencegate::http
