#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// A caller's name and what it may do.
struct identity {
    std::string principal;
    scope_set scopes;
};

/// Finds the principal of an API key.
///
/// Threads: any; immutable after construction.
class authenticator {
  public:
    /// Without keys every caller is the principal `dev` with all scopes. Errors: std::invalid_argument if a hash is not
    /// 64 hexadecimal digits.
    explicit authenticator(const std::vector<api_key>& keys);

    /// Returns the caller whose key a request carries.
    ///
    /// In:     `authorization` is the header's value, `Bearer KEY`; `x_api_key` is used if that is empty.
    /// Out:    valid as long as the authenticator.
    /// Errors: errc::unauthenticated.
    result<const identity*> identify(std::string_view authorization, std::string_view x_api_key) const;

  private:
    using digest = std::array<unsigned char, 32>;
    struct entry {
        digest hash{};
        identity caller;
    };
    std::vector<entry> entries_;
    identity keyless_caller_;
};

/// Checks that `granted` has the scope `needed`. Errors: errc::forbidden, which names the scope.
result<void> require_scope(scope_set granted, scope needed);

std::string_view to_string(scope s);

}  // namespace fencegate::http
