#pragma once

#include <gateway/domain/failure.hpp>

#include <lockcore/types.hpp>

#include <boost/json/array.hpp>

#include <vector>

namespace fencegate::api {

/// Returns the error code of the API for a failure of the lock manager.
errc meaning_of(lockcore::errc code);

/// Translates a failure of the lock manager, with the facts that docs/http-api.md names: `remaining_ms` and
/// `queue_position` of resource-locked, `nodes` of no-quorum, `named_cell` of misdirected-request, and Retry-After.
failure to_failure(const lockcore::failure& f);

/// Returns the member `nodes` of no-quorum: each node's answer, and why it does not vote.
boost::json::array describe_answers(const std::vector<lockcore::node_answer>& answers);

}  // namespace fencegate::api
