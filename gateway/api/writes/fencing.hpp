#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <string_view>

namespace fencegate::api {

/// Returns whether a request has a lease or a bare token in its headers.
bool has_fencing_headers(const http::request& r);

/// Returns the claims under which a request may write or do a fenced read: those of the lease `lease_id`; without one
/// those of the headers Fencing-Resource (percent-encoded names, separated by commas) and Fencing-Token, which carry a
/// token of another issuer and need the scope `bare_tokens`. The caller needs the scope `writes` for every resource too.
///
/// Errors: errc::fencing_required without either · errc::invalid_request, also for both at once ·
///         errc::lease_not_authentic · errc::forbidden.
result<lockcore::lease_claims> open_lease_or_token(const lockcore::lock_manager& locks, std::string_view lease_id,
                                                   const http::request& r);

}  // namespace fencegate::api
