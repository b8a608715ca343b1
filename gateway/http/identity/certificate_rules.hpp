#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/http/identity/identity.hpp>
#include <gateway/http/routing/client_certificate.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::http {

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
