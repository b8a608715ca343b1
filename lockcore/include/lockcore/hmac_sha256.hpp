#pragma once

#include <lockcore/secrets.hpp>

#include <mutex>
#include <string>
#include <vector>

namespace lockcore {

/// Signs with HMAC-SHA256 of OpenSSL. One key signs, and others may count beside it, so that a key can be replaced
/// while leases that it signed are live.
///
/// Threads: every member function is safe, also while others run.
class hmac_sha256 final : public authenticator {
  public:
    static constexpr std::size_t key_bytes_min = 32;
    /// In:     the keys are secrets, never shown. These copies of them are overwritten before this returns; OpenSSL has
    ///         its own until they are replaced.
    /// Errors: std::invalid_argument if a key is shorter than key_bytes_min.
    explicit hmac_sha256(std::string signing_key, std::vector<std::string> verification_keys = {});
    ~hmac_sha256() override;
    hmac_sha256(const hmac_sha256&) = delete;
    hmac_sha256& operator=(const hmac_sha256&) = delete;

    /// Replaces all keys. What a key that is no longer among them signed does not count from the return on.
    ///
    /// Errors: as of the constructor; the keys stay as they were.
    void set_keys(std::string signing_key, std::vector<std::string> verification_keys);

    mac sign(std::string_view message) const override;
    bool verify(std::string_view message, const mac& signature) const override;

    /// Returns the id of each key, first that of the key that signs.
    std::vector<std::string> key_ids() const;
    /// Returns the id of a key, from which the key can't be derived: "key-" and the first 12 hexadecimal digits of the
    /// SHA-256 of the key as HMAC's second step uses it (padded to 64 bytes, each xor 0x5c).
    static std::string id_of(std::string_view key);

  private:
    class prepared_key;

    mutable std::mutex mutex_;
    mutable std::vector<prepared_key> keys_;  ///< The first one signs.
};

}  // namespace lockcore
