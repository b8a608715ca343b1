#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/write/committed_write.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::pg {

/// A guarded write and the caller that waits for it.
struct pending_write {
    write_request request;
    deadline until;
    std::shared_ptr<caller_awaiting<committed_write>> caller;
    std::shared_ptr<void> ticket{};  ///< Counts it at the isolated_write_executor, while that has the write.

    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
    const std::string& principal() const { return request.initiator.principal; }
    const std::string& first_resource() const { return request.resources.front().str(); }
};

/// Maximum number of operations in one shared transaction; below prepared_max of a session, so that none of its
/// prepared statements is dropped before it is sent.
inline constexpr std::size_t shared_operations_max = 128;

/// Whether the write calls a function. Such a write must not share a transaction: a function may take any time, and may
/// do what no rollback undoes.
bool calls_function(const write_request& request);

/// Sorts the writes by their first resource; writes on one resource stay in order of arrival. A pure function.
void sort_by_resource(std::vector<pending_write>& waiting);

/// Takes the writes of the next transaction out of `waiting`, which is sorted: as many as fit, in ascending order of
/// their resources' names. A pure function.
///
/// Guards are locked in the order of their resources' names everywhere. A write on several resources that would break
/// this order waits for the next transaction on the same worker.
std::vector<pending_write> take_next_batch(std::vector<pending_write>& waiting);

}  // namespace fencegate::pg
