#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct evp_pkey_st;  // EVP_PKEY of OpenSSL

namespace fencegate {

/// The algorithms of signatures of JSON Web Tokens (RFC 7518, RFC 8037) that the gateway verifies.
enum class token_algorithm {
    rs256,  ///< RSA of at least 2048 bits, PKCS #1 1.5, SHA-256.
    es256,  ///< ECDSA on P-256, SHA-256.
    eddsa,  ///< Ed25519.
};

/// Returns the name in the member `alg`: "RS256", "ES256", "EdDSA".
std::string_view to_string(token_algorithm algorithm);

/// A public key of the issuer of tokens.
struct token_key {
    std::string id;             ///< The member `kid`, never empty.
    token_algorithm algorithm;  ///< The only algorithm that this key verifies.
    std::shared_ptr<evp_pkey_st> public_key;
    std::string fingerprint;  ///< SHA-256 of the public key as SubjectPublicKeyInfo, in hexadecimal.
    friend bool operator==(const token_key& a, const token_key& b);
};

/// The public keys of an issuer, from a JSON Web Key Set (RFC 7517).
///
/// Threads: any; immutable after construction.
class token_key_set {
  public:
    static constexpr std::size_t keys_max = 100;
    static constexpr std::size_t text_bytes_max = 256 << 10;
    static constexpr std::size_t id_bytes_max = 256;

    /// Reads a key set. Keys of other kinds, such as those for encryption, are left out.
    ///
    /// Out:    `faults` has a line for each key that is left out because it is malformed, weak, private, or has the
    ///         `kid` of another.
    /// Errors: empty if the text has more than text_bytes_max bytes, is no key set, or has more than keys_max keys or
    ///         no key that can be used; `faults` says so.
    static std::optional<token_key_set> parse(std::string_view json, std::vector<std::string>& faults);

    /// Returns whether a text can be the `kid` of a key: 1 to id_bytes_max visible ASCII characters, and no part of a
    /// path to another place.
    static bool is_key_id(std::string_view id);
    /// Returns the key with this `kid`; null if there is none.
    const token_key* find(std::string_view id) const;
    const std::vector<token_key>& keys() const { return keys_; }
    friend bool operator==(const token_key_set&, const token_key_set&) = default;

  private:
    std::vector<token_key> keys_;
};

}  // namespace fencegate
