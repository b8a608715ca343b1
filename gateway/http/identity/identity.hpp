#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>

#include <lockcore/types.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::http {

std::string_view to_string(scope s);

/// A set of `scope` as bits.
class scope_set {
  public:
    scope_set() = default;
    explicit scope_set(const std::set<scope>& scopes) {
        for (const scope s : scopes)
            bits_ |= bit(s);
    }
    bool has(scope s) const { return (bits_ & bit(s)) != 0; }
    static scope_set all();

  private:
    static constexpr unsigned bit(scope s) { return 1U << static_cast<unsigned>(s); }
    unsigned bits_ = 0;
};

/// What a caller may do. The only place that decides so (docs/decisions.md, 0012).
///
/// Errors:  of each require…: errc::forbidden, which names the scope and the resource, prefix, table or function.
/// Threads: any; immutable.
class rights {
  public:
    /// No rights.
    rights() = default;
    using time_point = std::chrono::system_clock::time_point;
    /// `claims`: a JSON object for the database; used if `given` has a role.
    explicit rights(const rights_config& given, time_point valid_until = time_point::max(), std::string claims = "{}");
    /// All scopes for everything.
    static rights all();

    /// Requires a scope for at least one resource, so that a request that will be refused in any case is refused before
    /// it is read.
    result<void> require_for_some(scope needed) const;

    /// Requires a scope for what concerns no resource or all resources: `scopes` has it, and no prefix lacks it.
    result<void> require(scope needed) const { return require_for_prefix(needed, {}); }

    /// Requires a scope for a resource: that of the longest prefix that its name begins with, otherwise of `scopes`.
    result<void> require(scope needed, std::string_view resource) const;
    /// Requires a scope for each of the resources.
    result<void> require(scope needed, std::span<const lockcore::resource_name> resources) const;

    /// Requires a scope for every resource whose name begins with `resource_prefix`.
    result<void> require_for_prefix(scope needed, std::string_view resource_prefix) const;

    /// Requires that the table or function may be used.
    result<void> require_exposed(std::string_view name) const;
    /// Requires that the caller may read every row of every table: `exposed` and `database_role` limit that.
    result<void> require_all_rows() const;

    /// Returns in whose name statements run in the database.
    const database_identity_ptr& database() const { return database_; }

    /// Returns when the rights end, with the token that they come from; those of other credentials do not end.
    time_point valid_until() const { return valid_until_; }

  private:
    struct prefix {
        std::string text;
        scope_set scopes;
    };
    scope_set scopes_of(std::string_view resource) const;

    scope_set scopes_;
    std::vector<prefix> prefixes_;  ///< Longest first.
    std::optional<std::set<std::string, std::less<>>> exposed_ = std::set<std::string, std::less<>>{};
    database_identity_ptr database_;
    time_point valid_until_ = time_point::max();
};

/// The certificate of a caller. The transport has verified it when the connection was made: its chain ended at a
/// trusted authority, it was valid, and the caller had its private key.
struct client_certificate {
    std::string subject;                 ///< The subject in the text of RFC 2253: `CN=orders,O=Shop`.
    std::vector<std::string> dns_names;  ///< The DNS names of the extension subjectAltName.
    std::vector<std::string> uris;       ///< The URIs of subjectAltName, such as `spiffe://shop.example/orders`.
    std::chrono::system_clock::time_point valid_until = std::chrono::system_clock::time_point::max();
};

/// A caller's name and what it may do.
struct identity {
    std::string principal;
    http::rights rights;
    /// Names the API key (its hash), the entry of the certificate in the configuration, or the key of the token and the
    /// rules by which it was verified (token_authenticator); empty where no credential is needed.
    std::string credential = {};
    /// Names it in the history: `key:` and the first 12 digits of the key's hash, `certificate:` and the value of its
    /// entry, or `token:` and the id of its key.
    std::string credential_name = {};
};

/// The credential_name of an API key by its hash, and of the entry of a certificate by its value.
inline std::string name_of_key(const std::string& key_sha256) {
    return "key:" + key_sha256.substr(0, 12);
}
inline std::string name_of_certificate(const std::string& value) {
    return "certificate:" + value;
}

/// Returns the caller of an API key or a certificate. Its claims for the database are `{"sub": principal, "role":
/// role}`.
identity make_identity(const std::string& principal, const rights_config& given, std::string credential,
                       std::string credential_name);

/// Finds the caller of a client certificate.
///
/// Threads: any; immutable after construction.
class certificate_rules {
  public:
    explicit certificate_rules(const std::vector<certificate_config>& rules);

    /// Returns the caller of the first entry of auth.client_certificates that matches; null if none does.
    std::shared_ptr<const identity> find(const client_certificate& certificate) const;

    /// Returns whether an entry still gives its certificates to the principal of `caller`, which find() returned before
    /// a reload.
    bool has(const identity& caller) const;

  private:
    std::vector<std::shared_ptr<const identity>> callers_;  ///< In the order of the configuration.
    /// Each value that a certificate may have, and the first entry with it.
    std::map<std::pair<certificate_config::field, std::string>, std::size_t> entries_;
};

}  // namespace fencegate::http
