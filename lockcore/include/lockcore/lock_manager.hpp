#pragma once

#include <lockcore/config.hpp>
#include <lockcore/events.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/node_status.hpp>
#include <lockcore/ports.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockcore {

/// What a release found.
struct release_outcome {
    std::uint32_t holds_left = 0;    ///< > 0: a re-entrant hold remains and the lease lives on.
    std::size_t nodes_released = 0;  ///< Nodes that held the lease and let it go.
};

/// What lock_manager::close_to_holds found.
struct closing {
    bool closed = false;  ///< False: other holds are left; nothing was done.
    hold_id mark;         ///< For lock_manager::reopen.
};

/// A lease that its manager renews (lock_manager::keep).
struct kept_lease {
    lease current;
    validity_time hold_until = validity_time::max();  ///< It is not kept longer than this.

    explicit kept_lease(lease granted) : current(std::move(granted)) {}

    /// Bounds how long it is kept from now on.
    void hold_for(milliseconds longest) { hold_until = current.valid_until - current.validity + longest; }
    kept_lease() = default;
};

/// What became of a kept lease.
struct keep_step {
    enum class outcome {
        renewed,    ///< It goes on.
        lost,       ///< It is over; `why` says how that is known.
        exhausted,  ///< It still stands, but is not kept longer: hold_until has come, or max_hold of the nodes.
    };
    outcome what = outcome::lost;
    kept_lease kept;
    std::string why;
};

/// Which live leases to list.
struct lease_query {
    std::string prefix;  ///< Of the resource's name; empty: all.
    std::string after;   ///< Only names behind this one; empty: from the start.
    std::size_t limit = 100;
    monotonic_time until = monotonic_time::max();  ///< The walk over the nodes ends here at the latest.
};

/// One lease a resource, in order of the names.
struct lease_page {
    std::vector<live_lease> leases;  ///< Of each, `claims.resources` is the one resource, if it covers several too.
    std::string next;                ///< For lease_query::after; empty: there are no more.
};

/// What should not stand on the nodes.
struct leak_report {
    static constexpr std::size_t examples_max = 10;
    struct on_node {
        std::string name;
        bool walked = false;                ///< To the end; else the counts are of what was seen.
        std::size_t leases = 0;             ///< A few may be counted twice.
        std::size_t without_ttl = 0;        ///< Lease keys that never run out: no holder of this protocol leaves such.
        std::vector<std::string> examples;  ///< Resources whose key has no ttl.
    };
    std::vector<on_node> nodes;
    /// Leases that stood on a minority of the nodes both times they were looked at: they keep nobody out for sure, and
    /// slow down who comes next.
    std::size_t held_by_minority = 0;
    std::vector<std::string> minority_examples;
};

/// How many callers wait here for one resource.
struct waiting_count {
    std::string resource;
    std::size_t waiters = 0;
};

/// Who waits at this manager; others have waiters of their own.
struct waiting_overview {
    std::size_t waiters = 0;               ///< Callers, each counted once.
    std::vector<waiting_count> resources;  ///< Those waited for most first; who waits for several counts at each.
};

/// Gives out leases with fencing tokens by Redlock over independent Redis nodes.
///
/// One shard an io_context; a resource belongs to shard hash(resource) mod shards, where its queue, its state machines
/// and its connections live. A call made on another thread hops there and back.
///
/// Threads: every member function may be called from any thread. The io_contexts must be run by one thread each.
/// Lifetime: stop() before the io_contexts stop; the register, authenticator and observer must outlive the manager.
/// Source:  docs/protocol.md; lockcore/README.md.
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

    /// Closes every connection; blocks until that is done, except for the shard on whose thread it is called. No call
    /// may be under way, and the io_contexts must be running.
    void stop();

    /// Takes the resource(s), waiting up to `request.wait` in order of arrival. A named owner that holds exactly these
    /// resources already gets the same token with one hold more, and its time is not cut; a known idempotency key gets
    /// the hold of the first request as it stands.
    ///
    /// Out:     a lease with validity > 0, granted by a majority under one token.
    /// Errors:  errc::resource_locked · no_quorum · too_many_waiters · idempotency_mismatch · renewals_exhausted
    /// (another
    ///          hold would pass max_hold, or holds_max) · shutting_down · cancelled · invalid_argument.
    /// Cancel:  (terminal) leaves the queue; an attempt under way is undone on every node.
    /// Timeout: node_timeout a round; `wait` in all.
    boost::asio::awaitable<result<lease>> acquire(acquire_request request);

    /// Extends the lease on a majority under the same token; never revives one that a majority has lost.
    ///
    /// Errors:  errc::lease_lost · renewals_exhausted · no_quorum (it may have been extended on some nodes).
    boost::asio::awaitable<result<lease>> renew(lease_claims claims, milliseconds ttl, std::string trace_id);

    /// The lease as a majority sees it now. Errors: errc::lease_lost · no_quorum.
    boost::asio::awaitable<result<lease>> inspect(lease_claims claims);

    /// Gives the hold of these claims back; with the last one the lease ends on every node, and the next who waits gets
    /// it: here in the same round (handoff_max), elsewhere by a message. Given back twice it is given back once.
    ///
    /// Out:     how many other holds are left.
    /// Errors:  errc::lease_lost (a majority did not hold it) · no_quorum. Nodes that were not reached are told until
    ///          max_ttl is over.
    boost::asio::awaitable<result<release_outcome>> release(lease_claims claims, std::string trace_id);

    /// If the hold of these claims is the only one, the lease refuses further holds from now on: whoever asks for one
    /// waits as for somebody else's lease. For a release that shuts the token out (a seal), before the seal.
    ///
    /// Errors:  errc::lease_lost · no_quorum: nothing is closed.
    boost::asio::awaitable<result<closing>> close_to_holds(lease_claims claims);

    /// Lifts what close_to_holds did: the seal failed, and the holder goes on. Waits for nothing; nodes that are not
    /// reached are told later.
    void reopen(lease_claims claims, closing closed);

    struct revocation {
        holder by;           ///< Who takes it away.
        std::string reason;  ///< For the history.
        std::string trace_id;
    };
    /// Takes a lease away, all holds of it. Whoever guards the data must be told first (a fence past its token): the
    /// holder does not know yet. Errors: as release.
    boost::asio::awaitable<result<release_outcome>> revoke(lease_claims claims, revocation why);

    /// Sleeps a third of the ttl and renews, whatever max_renewals is; returns at once when somebody else ended the
    /// lease, and when hold_until comes. To be called again and again with what it returned. For leases acquired with
    /// `kept`.
    ///
    /// Errors: errc::cancelled (the lease stands; release it).
    /// Cancel: (terminal) as said.
    boost::asio::awaitable<result<keep_step>> keep(kept_lease kept, std::string trace_id);

    /// Who holds it, as a majority sees it; nothing: nobody. Errors: errc::no_quorum · resource_locked (nobody can).
    boost::asio::awaitable<result<std::optional<live_lease>>> look(resource_name resource);

    /// The live leases, by walking over the keys of as many nodes as share one with every majority: the time it takes
    /// grows with the number of keys (about 0.5 ms for a thousand). One walk at a time.
    ///
    /// Errors: errc::no_quorum · busy. Timeout: query.until → no_quorum.
    boost::asio::awaitable<result<lease_page>> list(lease_query query);

    /// Walks slowly over all leases of all nodes: about 2,000 a second. One walk at a time.
    ///
    /// Errors: errc::busy. Cancel: (terminal) errc::cancelled.
    boost::asio::awaitable<result<leak_report>> find_leaks();

    /// Who waits at this manager for resources whose name begins with `prefix`; of the resources at most `limit`.
    boost::asio::awaitable<waiting_overview> waiting(std::string prefix, std::size_t limit);

    /// The claims of a lease_id made by this cluster's key. Errors: errc::lease_not_authentic.
    result<lease_claims> open(std::string_view lease_id) const;

    /// Every node, as the shard sees it whose view is worst. Never blocks; at most a second old.
    std::vector<node_status> nodes() const;

    /// How many callers wait for a resource here.
    std::size_t waiters() const;

    /// True while a majority of the nodes votes.
    bool has_quorum() const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace lockcore
