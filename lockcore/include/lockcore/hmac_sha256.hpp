#pragma once

#include <lockcore/ports.hpp>

#include <string>

namespace lockcore {

/// HMAC-SHA256 by OpenSSL.
class hmac_sha256 final : public authenticator {
  public:
    static constexpr std::size_t key_bytes_min = 32;
    /// `key`: kept in memory, never shown. Throws std::invalid_argument if it is shorter than key_bytes_min.
    explicit hmac_sha256(std::string key);
    std::array<std::byte, size> sign(std::string_view message) const override;

  private:
    std::string key_;
};

}  // namespace lockcore
