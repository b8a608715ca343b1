#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <vector>

namespace lockcore {

/// The state machine that finds the lease which a majority has for one resource. Two nodes have the same lease if nonce,
/// holder, resources, time of the grant and token are equal.
///
/// The driver sends LOOK once to every node and passes in the answers in any order.
///
/// Threads: not safe.
class survey {
  public:
    enum class verdict {
        pending,
        found,      ///< A majority holds lease().
        none,       ///< No lease is on a majority, whatever the nodes without an answer hold.
        occupied,   ///< As none; and a majority has a value that is no lease, so that no lease can be granted.
        no_quorum,  ///< Too few nodes answered to decide.
    };

    explicit survey(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

    verdict answered(node_index node, const node_reply& reply);
    verdict outcome() const { return verdict_; }
    /// Returns the lease that most nodes reported; null if no node reported one.
    const lease_record* lease() const;
    /// Returns every lease that a node reported, those of the most nodes first.
    std::vector<lease_record> reported_leases() const;
    /// Returns how many nodes reported lease().
    std::size_t nodes_holding() const;
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

    std::size_t nodes_, quorum_, answered_ = 0, received_ = 0;
    node_set occupied_;
    std::array<reply_status, nodes_max> answers_ = [] {
        std::array<reply_status, nodes_max> a{};
        a.fill(reply_status::pending);
        return a;
    }();
    std::vector<reported_lease> leases_;
    verdict verdict_ = verdict::pending;
};

}  // namespace lockcore
