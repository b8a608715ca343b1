#pragma once

#include <lockcore/types.hpp>

#include <set>

namespace lockcore {

/// Those who wait for one resource at one manager, in order of arrival. Only the first of them, the head, contends at
/// the nodes: "when does the head try (again), and who gets the lease that is given back here?"
///
/// Inputs: who came and went, what the head's try found, which nodes told that the lease ended. Time and chance come in
/// as arguments. Threads: not safe. Source: docs/protocol.md, "Waiting".
class wait_queue {
  public:
    using ticket = std::uint64_t;
    struct limits {
        std::size_t quorum = 1;
        std::uint32_t handoff_max = 0;
    };

    /// `handed_over`: how often running, before this queue emptied and began anew.
    explicit wait_queue(limits l, std::uint32_t handed_over = 0) : limits_(l), handed_over_(handed_over) {}

    /// Tickets must grow, but for those of callers that come back.
    void join(ticket t) { waiting_.insert(waiting_.end(), t); }
    /// True if the head left: the next one is to try at once.
    bool leave(ticket t);
    bool empty() const { return waiting_.empty(); }
    std::size_t size() const { return waiting_.size(); }
    ticket head() const { return *waiting_.begin(); }
    /// 1 = the head.
    std::size_t position(ticket t) const;

    /// The head's try found the resource held. `remaining`: until the holder's lease runs out; zero = not known.
    /// `chance`: any random number. Out: how long the head sleeps before it looks again by itself.
    milliseconds refused(milliseconds remaining, std::uint64_t chance);

    /// A node told that a lease ended. Out: how long the head still waits: nothing once a majority told of it, a little
    /// after the first, for the others may be lost.
    milliseconds told(node_index node, const nonce& ended);

    /// A lease is given back here. True: the head takes it over, in one round (docs/protocol.md HAND-OVER).
    bool takes_over();
    /// How often running leases were handed over.
    std::uint32_t handed_over() const { return handed_over_; }
    /// It was given back for all. Out: how long the head lets those who wait at other managers go first.
    milliseconds given_back(bool others_wait);

    /// Longest sleep of a head that hears nothing: what a lost message costs at most.
    static constexpr milliseconds look_again{250};
    /// First sleep after a refusal; each further one doubles, up to look_again.
    static constexpr milliseconds look_first{4};
    /// Sleep after the first node told of the end.
    static constexpr milliseconds rest_of_majority{5};
    /// How long the head lets others go first.
    static constexpr milliseconds others_first{15};

  private:
    limits limits_;
    std::set<ticket> waiting_;
    unsigned refusals_ = 0;  ///< Since somebody told of an end.
    std::uint32_t handed_over_;
    nonce ended_;
    node_set told_by_;
};

}  // namespace lockcore
