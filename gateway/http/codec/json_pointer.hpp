#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// RFC 6901: one more step down from `pointer`.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_pointer(std::string_view pointer, std::size_t index);

}  // namespace fencegate::http
