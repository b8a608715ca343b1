#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace fencegate::runtime {

/// Fills `out` with bytes of the system's cryptographic generator, drawn in blocks a thread so that an identifier costs
/// no system call. A generator that fails is a broken invariant and ends the process: identifiers would repeat.
void random_bytes(std::span<std::byte> out);

/// 32 lower-case hexadecimal digits.
std::string random_hex128();

/// A UUID version 7 (RFC 9562): milliseconds since 1970 first, so that an index over it grows at its end; 74 random
/// bits.
std::string uuid_v7();

}  // namespace fencegate::runtime
