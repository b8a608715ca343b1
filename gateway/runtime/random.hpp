#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace fencegate::runtime {

/// Fills `out` with bytes of OpenSSL's cryptographic generator, fetched in blocks for each thread so that an identifier
/// is cheap. If the generator fails, the process ends, because identifiers could repeat.
void random_bytes(std::span<std::byte> out);

/// Returns 128 random bits as 32 lower-case hexadecimal digits.
std::string random_hex128();

/// Returns a UUID version 7 (RFC 9562) with 74 random bits. It begins with the milliseconds since 1970, so that an
/// index over such values grows at its end.
std::string uuid_v7();

}  // namespace fencegate::runtime
