#pragma once

#include <lockcore/authenticator.hpp>

#include <string>

namespace lockcore {

/// Signs with HMAC-SHA256 of OpenSSL.
class hmac_sha256 final : public authenticator {
  public:
    static constexpr std::size_t key_bytes_min = 32;
    /// In:     `key`: the secret; kept in memory, never shown.
    /// Errors: std::invalid_argument if the key is shorter than key_bytes_min.
    explicit hmac_sha256(std::string key);
    std::array<std::byte, size> sign(std::string_view message) const override;

  private:
    std::string key_;
};

}  // namespace lockcore
