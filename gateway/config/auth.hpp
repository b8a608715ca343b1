#pragma once

#include <gateway/config/token_keys.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate {

inline constexpr std::size_t principal_bytes_max = 128;
inline constexpr std::size_t prefixes_max = 100;
inline constexpr std::size_t exposed_max = 1'000;
inline constexpr std::size_t exposed_name_bytes_max = 128;
/// As long as a name in PostgreSQL can be.
inline constexpr std::size_t database_role_bytes_max = 63;
/// No role of PostgreSQL has this name: as a role to take, it means to take none.
inline constexpr std::string_view no_database_role = "none";

/// What a caller may do.
enum class scope {
    leases,       ///< Acquire, renew, read, release leases.
    writes,       ///< Guarded writes and reads.
    history,      ///< Read the history, resources and live leases.
    operate,      ///< Revoke leases, repair fences, read the nodes.
    bare_tokens,  ///< Write with a token of another issuer.
};

/// The scopes for the resources whose names begin with a text.
struct prefix_scopes {
    std::string resource_prefix;  ///< Not empty; lockcore::resource_name::is_prefix.
    std::set<scope> scopes;       ///< Empty: forbids.
    friend bool operator==(const prefix_scopes&, const prefix_scopes&) = default;
};

/// The rights of a credential (docs/decisions.md, 0012).
struct rights_config {
    /// For every resource that no entry of `prefixes` matches, and for what concerns no resource.
    std::set<scope> scopes;
    /// For a resource, the scopes of the longest matching prefix replace `scopes`. At most 100, each once.
    std::vector<prefix_scopes> prefixes;
    /// The tables and functions that may be used, up to 1,000; absent: all that the database exposes.
    std::optional<std::set<std::string, std::less<>>> exposed;
    /// The database role of writes and reads, up to 63 bytes; empty: the gateway's own.
    std::string database_role;
    friend bool operator==(const rights_config&, const rights_config&) = default;
};

/// A principal's API key. Only the SHA-256 of the key is kept.
struct api_key {
    std::string principal;   ///< Name in history and logs, up to 128 bytes. Several credentials may have the same.
    std::string key_sha256;  ///< 64 lower-case hexadecimal digits.
    rights_config rights;
    friend bool operator==(const api_key&, const api_key&) = default;
};

/// The JSON Web Tokens (RFC 7519) of an identity provider. Each claim is named by a JSON pointer (RFC 6901) into the
/// payload, of at most 200 bytes; an empty one: no token has it.
struct jwt_config {
    std::string issuer;                  ///< What `iss` has to be. No default.
    std::vector<std::string> audiences;  ///< `aud` has to have one of them. 1 to 100; no default.
    /// The keys of `jwks_file`; empty: they come from `jwks_url`.
    std::optional<token_key_set> keys;
    std::string jwks_url;      ///< https, or http on a loopback host.
    std::string jwks_ca_file;  ///< Certificates of the authorities that `jwks_url` may have; empty: the system's.
    /// Pause between two requests of `jwks_url`. 10 s to 1 day.
    std::chrono::milliseconds refresh{300'000};
    std::set<token_algorithm> algorithms{token_algorithm::rs256, token_algorithm::es256, token_algorithm::eddsa};
    /// How far the issuer's clock may be from this one, for `exp` and `nbf`. 0 to 5 min.
    std::chrono::milliseconds clock_skew{30'000};
    std::string principal_claim = "/sub";
    std::string scopes_claim = "/scope";  ///< A text of names separated by spaces, or an array of names.
    std::string prefixes_claim;           ///< An array of `{resource_prefix, scopes}`.
    std::string exposed_claim;            ///< As scopes_claim.
    std::string database_role_claim;
    friend bool operator==(const jwt_config&, const jwt_config&) = default;
};

/// Returns whether the same key verifies the same tokens with the same rights: all members but those about where keys
/// come from are equal.
bool verify_alike(jwt_config a, const jwt_config& b);

/// A client certificate that has a principal: the one with this subject, DNS name or URI.
struct certificate_config {
    enum class field { subject, dns, uri };

    std::string principal;  ///< As of an api_key.
    field compared = field::subject;
    /// For `subject` the text of RFC 2253; otherwise an entry of subjectAltName. Compared exactly; up to 1,024 bytes.
    std::string value;
    rights_config rights;
    friend bool operator==(const certificate_config&, const certificate_config&) = default;
};

/// How callers prove who they are.
struct auth_config {
    std::vector<api_key> api_keys;                        ///< At most 10,000.
    std::optional<jwt_config> jwt;                        ///< Empty: no tokens are accepted.
    std::vector<certificate_config> client_certificates;  ///< At most 10,000. The first that matches counts.

    /// Returns whether no credential is configured. Every caller then is the principal `dev` with all scopes, and the
    /// gateway listens on loopback only.
    bool is_keyless() const { return api_keys.empty() && !jwt && client_certificates.empty(); }
};

/// Returns whether a text is 1 to `bytes_max` bytes without control characters.
bool is_plain_name(std::string_view text, std::size_t bytes_max);

enum class tls_version { v1_2, v1_3 };

/// The section http.tls. The texts are those of the files that it names, each of at most 64 KiB.
struct tls_config {
    std::string certificates;  ///< PEM: the gateway's certificate, then those that lead to an authority. No default.
    std::string key;           ///< PEM: the key of the first certificate, not encrypted. Never logged. No default.
    tls_version minimum_version = tls_version::v1_2;  ///< Callers with an older version are refused.
    /// PEM: the authorities whose client certificates are accepted. Empty: callers are not asked for a certificate.
    std::string client_authorities;
    bool client_certificates_required = false;  ///< Whether a caller without a client certificate is refused.
    friend bool operator==(const tls_config&, const tls_config&) = default;
};

}  // namespace fencegate
