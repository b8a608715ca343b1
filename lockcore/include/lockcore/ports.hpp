#pragma once

#include <lockcore/nodes.hpp>
#include <lockcore/secrets.hpp>
#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <string>

namespace lockcore {

/// The durable register of epochs and of what is known of each node (docs/protocol.md R8b). The gateway keeps it in
/// PostgreSQL.
///
/// Errors:  errc::no_quorum if the register can't be reached; the node does not vote, and the call is repeated later.
/// Threads: called on any shard.
/// Cancel:  the call may have taken effect, which does no harm.
class epoch_register {
  public:
    virtual ~epoch_register() = default;
    /// Reads what is known of a node. Called for a node that is not admitted, before its quarantine is decided.
    virtual boost::asio::awaitable<result<node_record>> find(std::string node_name) = 0;
    /// Draws an epoch above `highest_observed` and above every epoch drawn before, and returns after it is durable. The
    /// life that drew the node's latest epoch gets that epoch again. Records the life and whether it syncs every write;
    /// a life that is once recorded as unsynced stays unsynced. Called only when the node may vote.
    virtual boost::asio::awaitable<result<drawn_epoch>> draw(epoch_request request) = 0;
    /// Sets node_record::synced to false: the life with the node's latest epoch did not sync every write, or the node
    /// may have lost data since. Returns after that is durable.
    virtual boost::asio::awaitable<result<void>> note_unsynced(std::string node_name) = 0;
};

}  // namespace lockcore
