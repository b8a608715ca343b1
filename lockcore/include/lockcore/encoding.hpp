#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockcore {

/// Two lower-case hexadecimal digits for each byte.
std::string to_hex(std::span<const std::byte> bytes);

/// The lowest bits of a number as lower-case hexadecimal digits, as many as `out` has room for.
void write_hex(std::uint64_t bits, std::span<char> out);

/// Reads two hexadecimal digits, upper or lower case, for each byte of `out`.
///
/// Out: whether the text is that; if not, `out` may have been written in part.
bool from_hex(std::string_view text, std::span<std::byte> out);

/// Whether each character is a hexadecimal digit; also of an empty text.
bool is_hex(std::string_view text);
/// The same, lower case only.
bool is_lower_hex(std::string_view text);

/// Appends base64url (RFC 4648, 5) without padding.
void append_base64url(std::string& out, std::span<const std::byte> bytes);

/// The bytes of a text of base64url without padding; empty if it has another character. Takes more than one text for
/// the same bytes: unused bits at the end may be set.
std::optional<std::string> from_base64url(std::string_view text);

}  // namespace lockcore
