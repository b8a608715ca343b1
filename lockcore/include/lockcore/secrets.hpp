#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockcore {

/// Supplies random bits for nonces; tests pass a seeded source.
class random_source {
  public:
    virtual ~random_source() = default;
    virtual std::uint64_t next() = 0;
};

/// Signs lease_ids, so that nobody can forge them.
class authenticator {
  public:
    static constexpr std::size_t size = 32;
    using mac = std::array<std::byte, size>;
    virtual ~authenticator() = default;
    /// Returns a MAC over `message`.
    ///
    /// Threads: safe.
    virtual mac sign(std::string_view message) const = 0;
    /// Returns whether `signature` is a MAC over `message` by the key that signs, or by another one that counts.
    ///
    /// Threads: safe.
    virtual bool verify(std::string_view message, const mac& signature) const {
        return equal_in_constant_time(sign(message), signature);
    }

  protected:
    /// Compares in a time that does not depend on the position of the first difference.
    static bool equal_in_constant_time(const mac& a, const mac& b) {
        std::byte difference{};
        for (std::size_t i = 0; i < size; ++i)
            difference |= a[i] ^ b[i];
        return difference == std::byte{};
    }
};

}  // namespace lockcore
