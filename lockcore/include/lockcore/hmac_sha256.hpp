#pragma once

#include <lockcore/ports.hpp>

#include <string>

namespace lockcore {

/// HMAC-SHA256 by OpenSSL.
class hmac_sha256 final : public authenticator {
  public:
    /// `key`: at least 32 bytes, kept in memory, never shown.
    explicit hmac_sha256(std::string key);
    std::array<std::byte, size> sign(std::string_view message) const override;

  private:
    std::string key_;
};

}  // namespace lockcore
