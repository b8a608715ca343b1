#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <string_view>
#include <vector>

namespace fencegate::api {

/// What a route supports of the media types and preferences that headers may ask for.
struct answer_options {
    std::vector<std::string_view> media_types{"application/json"};  ///< The default, used without Accept, first.
    /// Supported preferences, as `name`, or as `name=value` if not every value is supported.
    std::vector<std::string_view> preferences{};
    bool changes_something = false;
    bool has_parameters = false;  ///< The handler reads the query.
    bool postgrest = false;       ///< Refusals carry PostgREST's codes.
};

/// Checks Accept, Prefer, Accept-Profile, Content-Profile, conditional headers and the query before anything runs, and
/// sets request::media_type.
///
/// An unsupported preference is ignored (RFC 7240), except with handling=strict, and except if the route changes
/// something and the preference would change what: max-affected, tx, timezone and params.
/// There is one set of table and function names, which both profiles may call `public`.
///
/// Errors: not_acceptable or invalid_request, which name the header or the parameter.
result<void> negotiate(http::request& r, const answer_options& options);

}  // namespace fencegate::api
