#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace lockcore {

/// Signs lease_ids, so that nobody can forge them.
class authenticator {
  public:
    static constexpr std::size_t size = 32;
    virtual ~authenticator() = default;
    /// Returns a MAC over `message`.
    ///
    /// Threads: safe.
    virtual std::array<std::byte, size> sign(std::string_view message) const = 0;
};

}  // namespace lockcore
