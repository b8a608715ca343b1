#pragma once

#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace lockcore {

/// What the durable register knows of a node.
struct node_record {
    bool known = false;    ///< An epoch was drawn for this name before; if not, the node can have forgotten nothing.
    epoch latest_epoch{};  ///< The latest epoch drawn for the node.
    std::string life;      ///< The life that drew this epoch.
    bool synced = false;  ///< That life synced every write at each check, and the node has shown no loss of data since.
};

/// The request of epoch_register::draw.
struct epoch_request {
    std::string node_name;
    /// The life of the node: its process and the state of its data. Empty: no node; the epoch is always new.
    std::string life;
    bool synced = false;       ///< The node synced every write at the last check.
    epoch highest_observed{};  ///< The highest epoch that this shard has observed on any node.
};

/// The result of epoch_register::draw.
struct drawn_epoch {
    epoch value{};
    bool repeated = false;  ///< The same life had drawn this epoch before.
};

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

/// Signs lease_ids, so that nobody can forge them.
class authenticator {
  public:
    static constexpr std::size_t size = 32;
    virtual ~authenticator() = default;
    /// Returns a MAC over `message`.
    ///
    /// Threads: safe.
    virtual std::array<std::byte, size> sign(std::string_view message) const = 0;
};

/// Supplies random bits for nonces; tests pass a seeded source.
class random_source {
  public:
    virtual ~random_source() = default;
    virtual std::uint64_t next() = 0;
};

}  // namespace lockcore
