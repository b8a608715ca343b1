#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Returns the text with U+FFFD for each byte that is no part of a valid character.
std::string replace_invalid_utf8(std::string text);

/// Returns as many whole characters of the text's beginning as have at most `bytes` bytes.
std::string_view cut_utf8(std::string_view text, std::size_t bytes);

}  // namespace fencegate::http
