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
    bool known = false;   ///< An epoch was drawn for this name before; if not, the node cannot have forgotten anything.
    epoch drawn{};        ///< The latest of them.
    bool synced = false;  ///< The life for which it was drawn was never seen without syncing every write.
};

/// For whom an epoch is drawn.
struct epoch_request {
    std::string node_name;
    /// One life of the node: a process, and the claim left in its data. Empty: for no node; always a new epoch.
    std::string life;
    bool synced = false;  ///< It syncs every write, as last looked at.
    epoch seen{};         ///< The highest epoch heard of.
};

/// What a draw answers.
struct drawn_epoch {
    epoch value{};
    bool repeated = false;  ///< The same life had this epoch before.
};

/// The durable register of the epoch, and of what each node has been (docs/protocol.md R8b). In the gateway it is
/// PostgreSQL.
///
/// Errors:  errc::no_quorum where the register can't be reached; the node stays out and the call is tried again later.
/// Threads: called on any shard. Cancel: it may have been done; that is harmless.
class epoch_register {
  public:
    virtual ~epoch_register() = default;
    /// Reads what is known of a node. Asked before the node sits out.
    virtual boost::asio::awaitable<result<node_record>> find(std::string node_name) = 0;
    /// Raises the epoch above `seen` and above every epoch drawn before, durably, before it answers; answers the life
    /// for which the node's latest epoch was drawn with that same epoch. Keeps the life and whether it syncs; a life
    /// once kept as not synced stays so. Asked only when the node may vote.
    virtual boost::asio::awaitable<result<drawn_epoch>> draw(epoch_request request) = 0;
    /// Keeps, durably before it answers, that the life with the node's latest epoch did not sync every write.
    virtual boost::asio::awaitable<result<void>> note_unsynced(std::string node_name) = 0;
};

/// Makes lease_ids that cannot be forged.
class authenticator {
  public:
    static constexpr std::size_t size = 32;
    virtual ~authenticator() = default;
    /// A MAC over `message`. Threads: safe.
    virtual std::array<std::byte, size> sign(std::string_view message) const = 0;
};

/// Random bits for nonces and jitter; a test gives a seeded one.
class random_source {
  public:
    virtual ~random_source() = default;
    virtual std::uint64_t next() = 0;
};

}  // namespace lockcore
