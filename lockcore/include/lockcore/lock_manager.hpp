#pragma once

#include <lockcore/config.hpp>
#include <lockcore/events.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/node_status.hpp>
#include <lockcore/ports.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>
#include <vector>

namespace lockcore {

/// What a release found.
struct release_outcome {
    std::uint32_t holds_left = 0;    ///< > 0: a re-entrant hold remains and the lease lives on.
    std::size_t nodes_released = 0;  ///< Nodes that held the lease and let it go.
};

/// Gives out leases with fencing tokens by Redlock over independent Redis nodes.
///
/// One shard an io_context; a resource belongs to shard hash(resource) mod shards, where its queue, its state machines
/// and its connections live. A call made on another thread hops there and back.
///
/// Threads: every member function may be called from any thread. The io_contexts must be run by one thread each.
/// Lifetime: stop() before the io_contexts stop; the register, authenticator and observer must outlive the manager.
/// Source:  PROTOCOL.md; lockcore/README.md.
class lock_manager {
  public:
    struct dependencies {
        epoch_register& epochs;
        const authenticator& mac;
        event_observer& events;
    };

    /// `cfg` must have passed validate(). Connections are opened by start().
    lock_manager(config cfg, std::vector<boost::asio::io_context*> shards, dependencies deps);
    ~lock_manager();
    lock_manager(const lock_manager&) = delete;
    lock_manager& operator=(const lock_manager&) = delete;

    /// Connects to the nodes and keeps connecting. Returns at once.
    void start();

    /// Refuses new leases with errc::shutting_down and wakes all waiters with it. Leases given stay as they are.
    void refuse_new_leases();

    /// Closes every connection. No call may be under way.
    void stop();

    /// Takes the resource(s), waiting up to `request.wait` in order of arrival.
    ///
    /// Out:     a lease with validity > 0, granted by a majority under one token.
    /// Errors:  errc::resource_locked · no_quorum · too_many_waiters · shutting_down · cancelled · invalid_argument.
    /// Cancel:  (terminal) leaves the queue; an attempt under way is undone on every node.
    /// Timeout: node_timeout a round; `wait` in all.
    boost::asio::awaitable<result<lease>> acquire(acquire_request request);

    /// Extends the lease on a majority under the same token; never revives one that a majority has lost.
    ///
    /// Errors:  errc::lease_lost · renewals_exhausted · no_quorum (it may have been extended on some nodes).
    boost::asio::awaitable<result<lease>> renew(lease_claims claims, milliseconds ttl, std::string trace_id);

    /// The lease as a majority sees it now. Errors: errc::lease_lost · no_quorum.
    boost::asio::awaitable<result<lease>> inspect(lease_claims claims);

    /// Gives the lease back on every node.
    ///
    /// Errors:  errc::lease_lost (a majority did not hold it) · no_quorum (what was reached is released; the rest runs
    /// out).
    boost::asio::awaitable<result<release_outcome>> release(lease_claims claims, std::string trace_id);

    /// The claims of a lease_id made by this cluster's key. Errors: errc::lease_not_authentic.
    result<lease_claims> open(std::string_view lease_id) const;

    /// Every node, as the shard sees it whose view is worst. Never blocks; at most a second old.
    std::vector<node_status> nodes() const;

    /// True while a majority of the nodes votes.
    bool has_quorum() const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace lockcore
