#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/write/committed_write.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::pg {

/// A guarded write and whoever waits for it.
struct pending_write {
    write_request request;
    deadline until;
    std::shared_ptr<waiting_for<committed_write>> caller;
    std::shared_ptr<void> ticket{};  ///< Held as long as it waits isolated; see isolated_write_executor.

    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
    const std::string& first_resource() const { return request.resources.front().str(); }
};

/// Most operations in one shared transaction; below session's prepared_max, so that none of its statements is forgotten
/// before it is sent.
inline constexpr std::size_t shared_operations_max = 128;

/// Whether the write must not share a transaction: a function may take any time, and do what no rollback undoes.
bool calls_function(const write_request& request);

/// Puts the writes in order of their first resource; those on one resource stay in order of arrival. Pure.
void sort_by_resource(std::vector<pending_write>& waiting);

/// Takes out of `waiting`, which is sorted, the writes of the next transaction: as many as fit, in an order in which
/// names never fall. Pure.
///
/// Guards are locked in the order of their resources' names, as everywhere. A write on several resources that would
/// break it waits for the next transaction, on the same worker.
std::vector<pending_write> take_next_batch(std::vector<pending_write>& waiting);

}  // namespace fencegate::pg
