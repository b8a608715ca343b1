#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <vector>

namespace lockcore {

/// What stands on the nodes for one resource: "which lease, if any, does a majority tell of?"
///
/// Action: send LOOK to every node, once. Answers come in any order.
/// Threads: not safe. Two nodes tell of the same lease if nonce and token agree.
class survey {
  public:
    enum class verdict {
        pending,
        found,      ///< A majority holds lease().
        none,       ///< No lease is on a majority, whatever the silent nodes hold.
        occupied,   ///< As none, and on a majority a value that is no lease keeps every lease out.
        no_quorum,  ///< Too few nodes answered to tell.
    };

    explicit survey(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

    verdict answered(node_index node, const node_reply& reply);
    verdict outcome() const { return verdict_; }
    /// The lease that most of the nodes told of; nothing where none told of any.
    const lease_record* lease() const;
    /// How many of the nodes tell of lease().
    std::size_t nodes_holding() const;
    /// The nodes that have a value under the lease's key that is no lease of this version.
    const node_set& occupied() const { return occupied_; }
    /// How long a majority still keeps lease(): with five nodes, the third longest. Negative: a node keeps it for ever.
    milliseconds remaining() const;
    reply_status answer_of(node_index node) const { return answers_[value_of(node)]; }

  private:
    struct seen {
        lease_record record;
        std::vector<milliseconds> remaining;
    };
    const seen* most() const;

    std::size_t nodes_, quorum_, answered_ = 0, heard_ = 0;
    node_set occupied_;
    std::array<reply_status, nodes_max> answers_ = [] {
        std::array<reply_status, nodes_max> a{};
        a.fill(reply_status::pending);
        return a;
    }();
    std::vector<seen> leases_;
    verdict verdict_ = verdict::pending;
};

}  // namespace lockcore
