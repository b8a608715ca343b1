#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockcore {

/// The state machine of one command about an existing lease that is sent to every node: RENEW, HOLD, INSPECT, RELEASE
/// or CLOSE. It decides whether a majority did it, and if not, why.
///
/// The driver sends the command once to every node and passes in the answers in any order.
///
/// Threads: not safe.
/// Source:  docs/protocol.md RENEW, RE-ENTRANT, HOLDS, R7.
class majority_round {
  public:
    enum class verdict {
        pending,
        yes,          ///< A majority did it.
        lost,         ///< A majority answered, and no majority holds the lease.
        uncounted,    ///< A majority has the lease, but it does not count on enough of them (UPGRADE).
        exhausted,    ///< RENEW, HOLD: a majority holds the lease, and a limit of renewals, holds or time is reached.
        other_holds,  ///< CLOSE: no majority can be closed any more, for other holds are left.
        no_quorum,    ///< Too few nodes answered to decide; some of them may have done it.
    };

    explicit majority_round(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

    node_set start() const;
    verdict answered(node_index node, const node_reply& reply);

    verdict outcome() const { return verdict_; }
    std::size_t yes() const { return yes_; }
    /// Returns the number of renewals: the second highest of the nodes that did it, which no faulty node alone can
    /// raise.
    std::uint64_t value() const;
    /// Returns for INSPECT how long a majority still holds the lease: with five nodes, the third longest ttl. Zero
    /// before a majority did it.
    milliseconds remaining() const;
    /// Returns the number of live holds in the replies `ok` and `other_holds`.
    std::size_t holds() const { return holds_.count(); }
    /// Returns the CLOSE marks of these nodes; empty if none refuses further holds.
    const std::string& close_marks() const { return holds_.close_marks(); }
    /// Returns for INSPECT the ttl that the lease was last given.
    milliseconds ttl() const { return ttl_; }
    /// Returns for RENEW and HOLD how long the lease has been held: the second longest time in a reply.
    milliseconds held() const;
    /// Returns for RELEASE the highest number of managers that one node notified.
    std::uint32_t notified_waiters() const { return notified_waiters_; }
    /// Returns for `exhausted` the highest `value` of a node.
    std::uint64_t limit() const { return limit_; }
    reply_status answer_of(node_index node) const { return answers_[value_of(node)]; }
    /// Returns max(stamp, base) of the lease on a node where it does not count; empty if the node did not report that.
    std::optional<std::uint64_t> uncounted_stamp(node_index node) const { return uncounted_stamps_[value_of(node)]; }

  private:
    std::size_t nodes_, quorum_;
    std::array<reply_status, nodes_max> answers_ = [] {
        std::array<reply_status, nodes_max> a{};
        a.fill(reply_status::pending);
        return a;
    }();
    std::array<milliseconds, nodes_max> remaining_{}, held_{};
    std::array<std::uint64_t, nodes_max> values_{};
    hold_view holds_;
    std::uint32_t notified_waiters_ = 0;
    milliseconds ttl_{};
    node_set answered_nodes_;
    std::array<std::optional<std::uint64_t>, nodes_max> uncounted_stamps_{};
    std::size_t yes_ = 0, lost_ = 0, uncounted_ = 0, exhausted_ = 0, other_holds_ = 0, silent_ = 0;
    std::uint64_t limit_ = 0;
    verdict verdict_ = verdict::pending;
};

/// The state machine that finds the lease which a majority has for one resource. Two nodes have the same lease if
/// nonce, holder, resources, time of the grant and token are equal.
///
/// The driver sends LOOK once to every node and passes in the answers in any order.
///
/// Threads: not safe.
class survey {
  public:
    enum class verdict {
        pending,
        found,      ///< A majority holds lease().
        shared,     ///< As none; and leases that share the resource may be on a majority: sharing().
        none,       ///< No lease is on a majority, whatever the nodes without an answer hold.
        occupied,   ///< As none; and a majority has a value that is no lease, so that no lease can be granted.
        no_quorum,  ///< Too few nodes answered to decide.
    };

    /// As many leases may share a resource on a node (redis/shared.lua).
    static constexpr std::size_t sharing_max = 1'024;

    explicit survey(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

    verdict answered(node_index node, const node_reply& reply);
    verdict outcome() const { return verdict_; }
    /// Returns the lease that most nodes reported; null if no node reported one.
    const lease_record* lease() const;
    /// Returns every lease that a node reported, those of the most nodes first.
    std::vector<lease_record> reported_leases() const;
    /// Returns how many nodes reported lease().
    std::size_t nodes_holding() const;
    /// Returns the attempts of the leases that share the resource on a majority, if the nodes without an answer have
    /// them too; sorted.
    std::vector<nonce> sharing() const;
    /// Returns the nodes that have a value under the lease's key that is no lease.
    const node_set& occupied() const { return occupied_; }
    /// Returns how long a majority still holds lease(): with five nodes, the third longest ttl. Negative: the key of
    /// some node has no ttl.
    milliseconds remaining() const;
    reply_status answer_of(node_index node) const { return answers_[value_of(node)]; }

  private:
    struct reported_lease {
        lease_record record;
        std::vector<milliseconds> remaining;  ///< The ttl on each node that reported the lease.
    };
    const reported_lease* most_reported() const;
    void add_sharing(node_index node, std::string_view nonces);

    std::size_t nodes_, quorum_, answered_ = 0, received_ = 0;
    node_set occupied_;
    std::array<reply_status, nodes_max> answers_ = [] {
        std::array<reply_status, nodes_max> a{};
        a.fill(reply_status::pending);
        return a;
    }();
    std::vector<reported_lease> leases_;
    std::map<std::string, node_set> sharing_;  ///< By attempt: the nodes that have its lease.
    verdict verdict_ = verdict::pending;
};

}  // namespace lockcore
