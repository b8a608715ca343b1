#pragma once

#include <gateway/domain/actor.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <lockcore/ports.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <string>
#include <vector>

namespace fencegate::pg {

/// Sets fences beside the writes, in order with them.
/// Threads: as write_executor. Errors: errc::storage_unavailable, overloaded; outcome_unknown where the connection
/// broke.
class fence_executor {
  public:
    explicit fence_executor(write_executor& writes) : writes_(writes) {}

    /// Raises fences to at least `to`, never lowers one; fence_raised stands in the history. For fence_on_grant and
    /// sealing.
    boost::asio::awaitable<result<std::vector<fence_state>>> raise(std::vector<lockcore::resource_name> resources,
                                                                   lockcore::fencing_token to, actor acting,
                                                                   std::string reason, deadline until);

    /// Sets a fence, also to a lower token; fence_raised with `repair` stands in the history. The fence as it is now.
    boost::asio::awaitable<result<fence_state>> repair(lockcore::resource_name resource, lockcore::fencing_token to,
                                                       actor acting, std::string reason, deadline until);

  private:
    write_executor& writes_;
};

/// What PostgreSQL knows of the Redis nodes. Threads and errors: as above.
class node_register {
  public:
    explicit node_register(write_executor& writes) : writes_(writes) {}

    /// docs/protocol.md R8b.
    boost::asio::awaitable<result<lockcore::drawn_epoch>> draw_epoch(lockcore::epoch_request request, deadline until);
    boost::asio::awaitable<result<lockcore::node_record>> find_node(std::string node_name, deadline until);
    /// Keeps that the node's life did not sync every write.
    boost::asio::awaitable<result<void>> note_unsynced(std::string node_name, deadline until);

  private:
    write_executor& writes_;
};

}  // namespace fencegate::pg
