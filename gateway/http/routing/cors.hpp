#pragma once

#include <gateway/http/message.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// Which pages of other sites may read answers (the CORS protocol of the Fetch standard, http.allowed_origins). Credentials
/// that a browser adds by itself are never allowed: a page has to send its API key or token.
///
/// Threads: any; immutable after construction.
class cors_rules {
  public:
    explicit cors_rules(std::vector<std::string> origins) : origins_(std::move(origins)) {}

    bool is_enabled() const { return !origins_.empty(); }

    /// Returns the origin of a request if its pages may read the answer; empty if they may not, or there is none.
    std::string_view allowed_origin(const request& r) const;

    /// Adds the fields that answer a preflight request (OPTIONS with Access-Control-Request-Method) of an allowed origin.
    ///
    /// In: `methods` those of the address, separated by commas.
    void answer_preflight(const request& r, std::string_view methods, response& answer) const;

  private:
    std::vector<std::string> origins_;
};

/// The headers of answers that scripts of an allowed origin may read.
extern const std::string_view exposed_headers;

}  // namespace fencegate::http
