#pragma once

#include <lockcore/types.hpp>

#include <boost/asio/awaitable.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace lockcore {

/// What the durable register answers when a node has to be let in.
struct drawn_epoch {
    epoch value{};
    bool first_admission = false;  ///< No epoch was ever drawn for this node: it cannot have forgotten anything.
};

/// The durable register of the epoch (PROTOCOL.md R8b). The gateway's is PostgreSQL.
class epoch_register {
  public:
    virtual ~epoch_register() = default;
    /// Raises the epoch above `seen` and above every epoch drawn before, durably, before it answers.
    ///
    /// Errors: errc::no_quorum where the register can't be reached; the node stays out and the draw is tried again
    /// later. Threads: called on any shard. Cancel: an epoch may have been drawn; that is harmless.
    virtual boost::asio::awaitable<result<drawn_epoch>> draw(std::string node_name, epoch seen) = 0;
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
