#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Returns the JSON pointer (RFC 6901) of a member or element of the value at `pointer`.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_pointer(std::string_view pointer, std::size_t index);

/// Shortens a pointer of more than 1 KiB: its beginning, in whole characters, and "…".
std::string shorten_pointer(std::string pointer);

}  // namespace fencegate::http
