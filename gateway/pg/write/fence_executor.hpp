#pragma once

#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/pg/schema/storage_generation.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <lockcore/ports.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// Sets fences, in order with the writes on the same resources.
///
/// Threads: as write_executor.
/// Errors:  errc::storage_unavailable, overloaded; outcome_unknown where the connection broke.
class fence_executor {
  public:
    explicit fence_executor(write_executor& writes) : writes_(writes) {}

    /// Raises fences to at least `new_fence` and never lowers one; the history records fence_raised. Used for
    /// fence_on_grant and for seals.
    boost::asio::awaitable<result<std::vector<fence_state>>> raise(std::vector<lockcore::resource_name> resources,
                                                                   lockcore::fencing_token new_fence, actor initiator,
                                                                   std::string reason, deadline until);

    /// Sets a fence, also to a lower token, and returns it; the history records fence_raised with `repair`.
    boost::asio::awaitable<result<fence_state>> repair(lockcore::resource_name resource,
                                                       lockcore::fencing_token new_fence, actor initiator,
                                                       std::string reason, deadline until);

  private:
    write_executor& writes_;
};

/// The register of the Redis nodes in PostgreSQL.
///
/// Threads: as write_executor.
/// Errors:  as fence_executor.
class node_register {
  public:
    explicit node_register(write_executor& writes) : writes_(writes) {}

    /// Draws an epoch for a node (docs/protocol.md R8b).
    boost::asio::awaitable<result<lockcore::drawn_epoch>> draw_epoch(lockcore::epoch_request request, deadline until);
    boost::asio::awaitable<result<lockcore::node_record>> find_node(std::string node_name, deadline until);
    /// Records that the node did not sync every write in its present life.
    boost::asio::awaitable<result<void>> note_unsynced(std::string node_name, deadline until);

  private:
    write_executor& writes_;
};

/// The storage generation in PostgreSQL; see schema/storage_generation.hpp for each call.
///
/// Threads: as write_executor.
/// Errors:  as fence_executor.
class storage_register {
  public:
    explicit storage_register(write_executor& writes) : writes_(writes) {}

    boost::asio::awaitable<result<storage_state>> find_state(deadline until);
    boost::asio::awaitable<result<std::optional<lockcore::storage_floor>>> begin_change(lockcore::epoch seen,
                                                                                        deadline until);
    boost::asio::awaitable<result<bool>> finish_change(std::string change_id, change_report report, deadline until);
    boost::asio::awaitable<result<std::vector<std::string>>> find_lost_writes(std::vector<std::string> write_ids,
                                                                              deadline until);

  private:
    write_executor& writes_;
};

}  // namespace fencegate::pg
