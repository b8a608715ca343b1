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

/// Who a caller is and what it may do.
struct identity {
    std::string principal;
    scope_set scopes;
};

/// Answers: whose API key is this.
///
/// Threads: not changed after construction, so safe from any thread.
class authenticator {
  public:
    /// Without keys every caller is the principal `dev` with all scopes. A hash that is not 64 hexadecimal digits:
    /// std::invalid_argument.
    explicit authenticator(const std::vector<api_key>& keys);

    /// `authorization` is the header's value, `Bearer KEY`; `x_api_key` counts where that is empty.
    ///
    /// Out:    valid as long as this is.
    /// Errors: errc::unauthenticated.
    result<const identity*> identify(std::string_view authorization, std::string_view x_api_key) const;

  private:
    using digest = std::array<unsigned char, 32>;
    struct entry {
        digest hash{};
        identity who;
    };
    std::vector<entry> entries_;
    identity everyone_;
};

/// Errors: errc::forbidden, naming the scope.
result<void> require_scope(scope_set has, scope needed);

std::string_view to_string(scope s);

}  // namespace fencegate::http
