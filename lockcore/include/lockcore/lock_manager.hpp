#pragma once

#include <lockcore/config.hpp>
#include <lockcore/events.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/nodes.hpp>
#include <lockcore/ports.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore {

/// The request of lock_manager::list_leases.
struct lease_query {
    std::string principal;  ///< Whose listing it is: principals take turns.
    std::string prefix;     ///< Only resources whose name begins with this; empty: all.
    std::string after;      ///< lease_page::next of the page before; empty: from the first.
    std::size_t limit = 100;
    monotonic_time until = monotonic_time::max();  ///< The deadline of the scan of the nodes.
};

/// One page of live leases, sorted by resource: one entry for each lease that shares a resource, one for any other
/// resource.
struct lease_page {
    /// `claims` names one resource, in `resources` or in `shared`, even if the lease covers several.
    std::vector<live_lease> leases;
    /// The lease_query::after of the next page: a resource, and then perhaps a tab and 32 digits. Empty: this is the
    /// last page.
    std::string next;
};
/// Returns whether a text has the form of lease_page::next.
bool is_page_position(std::string_view text);

/// The leases that hold one resource.
struct resource_leases {
    bool shared = false;             ///< They share it; otherwise there is at most one.
    std::vector<live_lease> leases;  ///< Of shared ones the first by their nonces.
    std::size_t total = 0;           ///< How many there are.
};

/// The leaked leases that lock_manager::find_leaks found.
struct leak_report {
    static constexpr std::size_t examples_max = 10;
    struct node_leaks {
        std::string name;
        bool complete = false;              ///< The scan reached the end; if not, the counts cover a part of the keys.
        std::size_t leases = 0;             ///< A few may be counted twice.
        std::size_t without_ttl = 0;        ///< Lease keys without a ttl; lockcore never writes one.
        std::vector<std::string> examples;  ///< Resources whose key has no ttl.
    };
    std::vector<node_leaks> nodes;
    /// Leases that only a minority of the nodes held at both checks. They do not exclude other holders, and they delay
    /// the next one.
    std::size_t held_by_minority = 0;
    std::vector<std::string> minority_examples;
};

/// Grants leases with fencing tokens by Redlock over independent Redis nodes.
///
/// There is one shard for each io_context. A resource belongs to the shard hash(resource) mod shards, which has its
/// queue, its attempts and its connections. A call from another thread runs on the shard's thread and returns to the
/// caller's executor.
///
/// Threads:  any thread may call every member function. Exactly one thread runs each io_context.
/// Lifetime: stop() before the io_contexts stop; the register, authenticator and observer must outlive the manager.
/// Source:   docs/protocol.md; lockcore/README.md.
class lock_manager {
  public:
    struct dependencies {
        epoch_register& epochs;
        const authenticator& mac;
        event_observer& events;
    };

    /// Creates the shards without opening connections. `cfg` must have passed validate().
    lock_manager(config cfg, std::vector<boost::asio::io_context*> shards, dependencies deps);
    ~lock_manager();
    lock_manager(const lock_manager&) = delete;
    lock_manager& operator=(const lock_manager&) = delete;

    /// Begins to connect to the nodes, and reconnects until stop(). Returns at once.
    void start();

    /// Refuses new leases with errc::shutting_down and ends all waiting calls with it. Live leases are not changed.
    void refuse_new_leases();

    /// Closes every connection, and blocks until that is done on every shard but the one of the calling thread. No call
    /// may be in progress, and the io_contexts must be running.
    void stop();

    /// Acquires a lease; waits up to `request.wait` in order of arrival if the resources are held. A named owner that
    /// already holds exactly these resources gets the same token with one more hold, and its validity is not shortened.
    /// A known idempotency key gets the hold of the first request.
    ///
    /// Out:     a lease with validity > 0, granted by a majority under one token.
    /// Errors:  errc::resource_locked · no_quorum · too_many_waiters (config::waiters_max, or request.admit_waiter
    ///          refused) · idempotency_mismatch · renewals_exhausted (the further hold would exceed max_hold or
    ///          holds_max) · shutting_down · cancelled · invalid_argument.
    /// Cancel:  (terminal) leaves the queue and undoes what was acquired, but returns a grant with an idempotency key.
    /// Timeout: node_timeout for each round; `wait` in total.
    boost::asio::awaitable<result<lease>> acquire(acquire_request request);

    /// Cancels the acquire() with the same idempotency key, holder and resources, at this manager or another one, and
    /// releases what it was granted. For `request.wait` and ten seconds more this manager refuses the key
    /// (errc::idempotency_mismatch), and releases what another one grants to it.
    ///
    /// Out:     how many other holds are left; 0 also if there was nothing to release.
    /// Errors:  errc::no_quorum · busy (not remembered, because config::waiters_max cancelled requests are, or three
    ///          quarters of them by this principal) · invalid_argument. The call may be repeated.
    boost::asio::awaitable<result<release_outcome>> cancel(acquire_request request);

    /// Extends the lease on a majority under the same token. Never restores a lease that a majority has lost.
    ///
    /// Errors:  errc::lease_lost · renewals_exhausted · no_quorum (some nodes may have extended the lease).
    boost::asio::awaitable<result<lease>> renew(lease_claims claims, milliseconds ttl, std::string origin);

    /// Returns the present state of the lease on a majority.
    ///
    /// Errors:  errc::lease_lost · no_quorum.
    boost::asio::awaitable<result<lease>> inspect(lease_claims claims);

    /// Releases the hold of these claims. The release of the last hold ends the lease on every node. A waiter of this
    /// manager gets the next lease in the same round (up to handoff_max times in a row); waiters of other managers are
    /// notified. A repeated release has no further effect.
    ///
    /// Out:     how many other holds are left.
    /// Errors:  errc::lease_lost (a majority did not hold it) · no_quorum. Nodes that could not be reached are asked
    ///          again for as long as max_ttl.
    boost::asio::awaitable<result<release_outcome>> release(lease_claims claims, std::string origin);

    /// Sets a CLOSE mark if the hold of these claims is the only one: the lease then refuses further holds, and its
    /// holder waits for it as any other caller does. To be called before the token is sealed and the hold released.
    ///
    /// Errors:  errc::lease_lost · no_quorum: this call did not close the lease.
    boost::asio::awaitable<result<close_outcome>> close_to_new_holds(lease_claims claims);

    /// Removes the mark of that close_to_new_holds, for a seal that failed; those of other calls stay. Returns at once;
    /// nodes that cannot be reached are asked again later.
    void reopen(lease_claims claims, close_outcome closed);

    struct revocation {
        holder actor;        ///< The operator who revokes the lease.
        std::string reason;  ///< For the history.
        std::string origin;
    };
    /// Ends a lease with all its holds. Raise the fence above its token before: the holder still believes to hold it.
    ///
    /// Errors:  errc::lease_lost · no_quorum (where the lease was not ended it expires).
    boost::asio::awaitable<result<release_outcome>> revoke(lease_claims claims, revocation request);

    /// Waits a third of the ttl and renews the lease, without regard to max_renewals. Returns early when another call
    /// ends the lease or hold_until is reached. The caller calls it again with `kept` of the result for as long as that
    /// is `renewed`. Only for leases acquired with `kept`.
    ///
    /// Errors:  errc::cancelled (the lease is still live; release it).
    /// Cancel:  (terminal) errc::cancelled.
    boost::asio::awaitable<result<keep_step>> keep(kept_lease kept, std::string origin);

    /// Inspects the lease, and waits until it ends or `longest` has passed, without extending it. Notices at once if it
    /// is released or revoked, by whichever manager (unless sixteen others are notified already), and otherwise by the
    /// end of its validity or of `longest`.
    ///
    /// Errors:  errc::no_quorum · cancelled.
    /// Cancel:  (terminal) errc::cancelled.
    boost::asio::awaitable<result<watch_step>> watch(lease_claims claims, milliseconds longest);

    /// Returns the lease that a majority has for the resource exclusively; empty if there is none. `sharing`: the
    /// lease of this attempt, which shares the resource.
    ///
    /// Errors:  errc::no_quorum · resource_locked (the resource is occupied: its key has a value that is no lease).
    boost::asio::awaitable<result<std::optional<live_lease>>> find_lease(resource_name resource,
                                                                         std::optional<nonce> sharing = std::nullopt);
    /// Returns the lease that holds the resource, or at most `limit` of those that share it. To end all that share it:
    /// revoke() for each.
    ///
    /// Errors:  those of find_lease.
    boost::asio::awaitable<result<resource_leases>> find_leases(resource_name resource, std::size_t limit);

    /// Announces the floor of a change of the storage generation to all nodes, those that do not vote too. Leases stay
    /// as they are. May be repeated.
    ///
    /// Out:     whether enough nodes have it, and whether it is too close to an epoch that a node has seen: then the
    ///          floor has to be drawn again.
    /// Timeout: config::node_dead_after.
    boost::asio::awaitable<result<floor_announcement>> announce_floor(storage_floor floor);
    /// Makes all tokens granted here from now on higher than floor × 2^32. Returns at once. Only for the floor of a
    /// change that is finished.
    void raise_hints(epoch floor);

    /// Lists the live leases. Scans the keys of so many nodes that every majority includes one of them; that takes
    /// about 0.5 ms for a thousand keys.
    ///
    /// Errors:  errc::no_quorum · busy.
    /// Limits:  one listing at a time. Others wait up to 5 s, one of each principal, in order; more are refused (busy).
    /// Timeout: query.until → no_quorum.
    boost::asio::awaitable<result<lease_page>> list_leases(lease_query query);

    /// Looks for leaked leases on all nodes, one node after the other, at about 2,000 leases a second.
    ///
    /// Errors:  errc::busy.
    /// Limits:  one search at a time.
    /// Cancel:  (terminal) errc::cancelled.
    boost::asio::awaitable<result<leak_report>> find_leaks();

    /// Counts the callers that wait at this manager for resources whose name begins with `prefix`. Lists at most
    /// `limit` resources.
    boost::asio::awaitable<waiting_overview> list_waiters(std::string prefix, std::size_t limit);

    /// Returns the claims of a lease_id that was signed with this cluster's key.
    ///
    /// Errors:  errc::lease_not_authentic, errc::other_cell.
    result<lease_claims> verify_lease_id(std::string_view lease_id) const;

    /// Returns the status of every node: of all shards' views the worst. Does not wait for the nodes; the views are
    /// at most one tick old (2 to 25 ms).
    std::vector<node_status> nodes() const;

    /// Returns how many callers wait at this manager.
    std::size_t waiters() const;

    /// Returns whether a majority of the nodes votes.
    bool has_quorum() const;

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace lockcore
