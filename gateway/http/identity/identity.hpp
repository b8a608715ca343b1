#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/http/identity/rights.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::http {

/// The certificate of a caller. The transport has verified it when the connection was made: its chain ended at a trusted
/// authority, it was valid, and the caller had its private key.
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
};

/// Returns the caller of an API key or a certificate. Its claims for the database are `{"sub": principal, "role": role}`.
identity make_identity(const std::string& principal, const rights_config& given, std::string credential);

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
