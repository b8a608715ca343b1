#pragma once

#include <gateway/http/identity/rights.hpp>

#include <string>
#include <string_view>

namespace fencegate::http {

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

}  // namespace fencegate::http
