#pragma once

#include <gateway/domain/failure.hpp>

#include <lockcore/result.hpp>

namespace fencegate::api {

/// Returns the error code of the API for a failure of the lock manager.
errc meaning_of(lockcore::errc code);

/// Translates a failure of the lock manager, with the facts that docs/http-api.md names: `remaining_ms` and
/// `queue_position` of resource-locked, `nodes` of no-quorum, `named_cell` of misdirected-request, and Retry-After.
failure to_failure(const lockcore::failure& f);

}  // namespace fencegate::api
