#pragma once

#include <gateway/config/token_keys.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace fencegate {

/// An issuer of JSON Web Tokens with one key, for tests.
class token_issuer {
  public:
    enum class kind { rsa_2048, rsa_1024, p256, p384, ed25519 };
    /// Makes a key, or takes the one that an earlier issuer of this kind and name has made.
    explicit token_issuer(kind k, std::string id = "key-1");

    const std::string& id() const { return id_; }
    /// Returns the public key as a JSON Web Key; `more` are further members, each with a comma before.
    std::string jwk(const std::string& more = "") const;
    /// Returns a key set with this key alone.
    token_key_set key_set() const;

    std::string sign(std::string_view text) const;
    /// Returns a token with this header and payload, both JSON.
    std::string token(std::string_view header, std::string_view payload) const;
    /// Returns a token with the header that belongs to the key.
    std::string token(std::string_view payload) const;

  private:
    kind kind_;
    std::string id_;
    std::shared_ptr<evp_pkey_st> key_;
};

std::string base64url(std::string_view bytes);

}  // namespace fencegate
