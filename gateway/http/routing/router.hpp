#pragma once

#include <gateway/http/message.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// One thing that can be called.
struct route {
    method verb = method::get;
    std::string path;  ///< Template: `/v1/leases/{lease_id}/renew`. A placeholder takes one non-empty segment.
    std::optional<scope> needs;  ///< Empty: open to everyone, without authentication.
    handler handle;
    bool long_waiting = false;  ///< May take long by intent: its caller's hanging up cancels it.
};

/// Answers: which route is meant by a method and a path.
///
/// Threads: not changed after construction, so safe from any thread.
class router {
  public:
    /// Two routes with the same method and path are a programming error: std::logic_error.
    explicit router(std::vector<route> routes);

    enum class outcome {
        found,
        not_found,           ///< No route has such a path.
        method_not_allowed,  ///< Others have it; `allow` says which methods.
        options,             ///< OPTIONS of a path that exists; `allow` is the answer.
        malformed,           ///< A percent sign without two hexadecimal digits.
    };
    struct match {
        outcome what = outcome::not_found;
        const route* target = nullptr;  ///< found
        std::vector<std::string> parameters;
        std::string allow;
    };

    /// `path` as sent, still encoded. A `%2F` inside a segment stays part of it. HEAD finds what GET finds.
    match find(method verb, std::string_view path) const;

    const std::vector<route>& routes() const { return routes_; }

  private:
    struct segment {
        std::string text;
        bool placeholder = false;
    };
    std::vector<route> routes_;
    std::vector<std::vector<segment>> templates_;  ///< One a route, in the same order.
};

}  // namespace fencegate::http
