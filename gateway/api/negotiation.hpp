#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <string_view>
#include <vector>

namespace fencegate::api {

/// What an address can do of that which headers ask for.
struct answer_options {
    std::vector<std::string_view> media_types{"application/json"};  ///< The one that is given without Accept first.
    std::vector<std::string_view>
        preferences{};  ///< That it honours, by name, or by `name=value` where not every value.
    bool changes_rows = false;
};

/// Decides what Accept, Prefer, Accept-Profile and Content-Profile ask for, before anything runs; sets
/// request::media_type.
///
/// A preference that is not honoured is passed over (RFC 7240), but not with handling=strict, and not where the address
/// changes rows and the preference would have it change others: max-affected, tx, timezone and params.
/// The names of tables and functions are one set, which both profiles may call `public`.
///
/// Errors:  not_acceptable or invalid_request, naming the header.
result<void> negotiate(http::request& r, const answer_options& options);

}  // namespace fencegate::api
