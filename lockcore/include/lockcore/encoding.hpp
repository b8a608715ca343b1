#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockcore {

/// Returns two lower-case hexadecimal digits for each byte.
std::string to_hex(std::span<const std::byte> bytes);

/// Writes the lowest bits of a number as lower-case hexadecimal digits and fills `out` with them.
void write_hex(std::uint64_t bits, std::span<char> out);

/// Reads two hexadecimal digits, upper or lower case, for each byte of `out`.
///
/// Out: false if the text has another length or another character; `out` is then unchanged.
bool from_hex(std::string_view text, std::span<std::byte> out);

/// Returns whether every character is a hexadecimal digit; true for an empty text.
bool is_hex(std::string_view text);
/// Returns whether every character is a digit or one of a to f; true for an empty text.
bool is_lower_hex(std::string_view text);
/// Returns whether a UTF-8 text has a character below U+0020 or from U+007F to U+009F.
bool has_control_character(std::string_view text);
bool is_utf8(std::string_view text);
/// Returns the length of the character at the beginning of a text that is not empty; 0 if it is not UTF-8.
std::size_t utf8_character_size(std::string_view text);

/// Appends the bytes as base64url (RFC 4648, section 5) without padding.
void append_base64url(std::string& out, std::span<const std::byte> bytes);

/// Decodes base64url without padding.
///
/// Out: the bytes; empty if the text has a character that is not base64url. Several texts may give the same bytes, for
///      unused bits at the end may be set.
std::optional<std::string> from_base64url(std::string_view text);

}  // namespace lockcore
