#pragma once

#include <gateway/domain/failure.hpp>

#include <lockcore/result.hpp>

namespace fencegate::api {

/// The code under which callers see a failure of the lock manager.
errc meaning_of(lockcore::errc code);

/// A failure of the lock manager with the facts that docs/http-api.md names: `remaining_ms` and `queue_position` of
/// resource-locked, `nodes` of no-quorum, and Retry-After.
failure to_failure(const lockcore::failure& f);

}  // namespace fencegate::api
