#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/hold_view.hpp>

#include <array>

namespace lockcore {

/// One question to every node about a lease that exists: RENEW, HOLD, INSPECT, RELEASE or CLOSE. "Does a majority say
/// yes, and if not, why?"
///
/// Action: send the question to every node, once. Answers come back in any order.
/// Threads: not safe. Source: docs/protocol.md RENEW, RE-ENTRANT, HOLDS, R7.
class majority_round {
  public:
    enum class verdict {
        pending,
        yes,        ///< A majority did it.
        lost,       ///< A majority answered, and it does not hold the lease.
        exhausted,  ///< RENEW, HOLD: a majority holds it, and renewals or holds are used up.
        kept,       ///< CLOSE: no majority can be closed any more, for other holds are left.
        no_quorum,  ///< Too few nodes can answer. Some may have done it.
    };

    explicit majority_round(std::size_t nodes) : nodes_(nodes), quorum_(majority_of(nodes)) {}

    node_set start() const;
    verdict answered(node_index node, const node_reply& reply);

    verdict outcome() const { return verdict_; }
    std::size_t yes() const { return yes_; }
    /// Highest `value` of those that did it: the renewals so far.
    std::uint64_t value() const { return value_; }
    /// How long a majority still keeps the lease (INSPECT): with five nodes, the third longest. Zero before a majority
    /// said yes.
    milliseconds remaining() const;
    /// The holds of which the nodes told that said yes, or that the lease is kept.
    std::size_t holds() const { return holds_.count(); }
    /// Some of these nodes refuse further holds.
    bool closed() const { return holds_.closed(); }
    /// INSPECT: the ttl that one of them told of.
    milliseconds ttl() const { return ttl_; }
    /// RENEW, HOLD: how long the lease was held, as the node said that counted most.
    milliseconds held() const { return held_; }
    /// RELEASE: the most that one node told of its end.
    std::uint32_t told() const { return told_; }
    /// No answer is still to come, late ones apart.
    bool complete() const { return seen_.count() == nodes_; }
    /// exhausted: the highest `value` that a node gave with it.
    std::uint64_t limit() const { return limit_; }
    reply_status answer_of(node_index node) const { return answers_[value_of(node)]; }

  private:
    std::size_t nodes_, quorum_;
    std::array<reply_status, nodes_max> answers_ = [] {
        std::array<reply_status, nodes_max> a{};
        a.fill(reply_status::pending);
        return a;
    }();
    std::array<milliseconds, nodes_max> remaining_{};
    hold_view holds_;
    std::uint32_t told_ = 0;
    milliseconds ttl_{}, held_{};
    node_set seen_;
    std::size_t yes_ = 0, lost_ = 0, exhausted_ = 0, kept_ = 0, silent_ = 0;
    std::uint64_t value_ = 0, limit_ = 0;
    verdict verdict_ = verdict::pending;
};

}  // namespace lockcore
