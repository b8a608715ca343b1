#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <string_view>

namespace fencegate::api {

/// Whether a request brings a lease or a bare token by its headers.
bool brings_fencing(const http::request& r);

/// Under what a request may write, or read fenced: the claims of the lease `lease_id`; without one those that the
/// headers Fencing-Resource (1 to 16 names, separated by commas) and Fencing-Token make, a token of another issuer,
/// which takes the scope `bare_tokens`.
///
/// Errors: errc::fencing_required without either · errc::invalid_request, also for both at once ·
/// errc::lease_not_authentic · errc::forbidden.
result<lockcore::lease_claims> open_fencing(services with, std::string_view lease_id, const http::request& r);

}  // namespace fencegate::api
