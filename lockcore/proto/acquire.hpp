#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <array>
#include <optional>
#include <vector>

namespace lockcore {

/// One attempt to take a lease: "what next, after this answer?" (docs/protocol.md R1–R5).
///
/// Asks every node to ACQUIRE. Once a majority has said OK, T is the highest counter among the replies, and the attempt
/// is complete when a majority of nodes is *stamped* with exactly T: by its reply to ACQUIRE, or by CONFIRM(T). A node
/// that reports a counter past T raises T for all and drops the stamps.
///
/// Actions: send ACQUIRE or CONFIRM to some nodes. The driver performs them and feeds each answer back, in any order,
/// late ones too. Threads: not safe. No clock: the driver tests the validity (R6) when `granted`, and undoes on
/// `undo_targets()` when it has failed.
class acquire {
  public:
    /// What to send now; nothing if `to` is empty.
    struct step {
        node_set to;
        command_kind kind = command_kind::acquire;
        fencing_token token{};  ///< CONFIRM's T.
    };
    enum class verdict {
        pending,
        granted,    ///< A majority is stamped with token().
        locked,     ///< A majority answered, and too many nodes are held by another.
        no_quorum,  ///< Too few nodes can answer, also to tell whether the holder's own lease is the one in the way.
    };
    /// How often T may be raised (R5) before the attempt gives up; contention in a shared counter could otherwise go on
    /// for ever.
    static constexpr unsigned raises_max = 16;

    explicit acquire(std::size_t nodes);

    step start();
    step acquire_answered(node_index node, const node_reply& reply);
    /// `sent`: the T that this CONFIRM carried.
    step confirm_answered(node_index node, fencing_token sent, const node_reply& reply);

    verdict outcome() const { return verdict_; }
    fencing_token token() const { return token_; }
    std::size_t stamps() const { return count(phase::stamped); }
    /// Granted, and no answer is still to come that could stamp another node, late ones apart.
    bool settled() const { return verdict_ == verdict::granted && count(phase::asked) + count(phase::confirming) == 0; }
    /// The highest counter or holder's token that any node told of: the next hint.
    fencing_token highest_heard() const { return highest_heard_; }
    /// locked: until enough nodes are free again for a majority, as far as they told; zero if they did not.
    milliseconds remaining() const;
    /// locked: the lease of this very holder that stands in the way, where a majority tells of it under one token; on
    /// fewer it may be a late request's.
    std::optional<lease_record> own_lease() const;
    /// Nodes on which a value that is no lease of this version occupies a key, as far as they answered.
    const node_set& occupied() const { return occupied_; }
    /// Nodes on which the attempt may have left its lease: all but those that said no.
    node_set undo_targets() const;
    /// The last answer of a node.
    reply_status answer_of(node_index node) const { return slots_[value_of(node)].answer; }

  private:
    enum class phase : std::uint8_t {
        asked,       ///< ACQUIRE is on its way.
        raised,      ///< Holds our lease with a counter above T, or T is not yet chosen.
        confirming,  ///< CONFIRM(T) is on its way.
        stamped,
        out,  ///< Can't be stamped any more (an answer that was only late may bring it back).
    };
    struct slot {
        phase at = phase::asked;
        bool ours = false;  ///< ACQUIRE said OK, and nothing since said otherwise.
        std::uint64_t counter = 0;
        milliseconds remaining{0};
        reply_status answer = reply_status::pending;
    };

    std::size_t count(phase p) const;
    step settle();
    step choose_token();
    step raise_to(fencing_token floor);
    step confirm_where_needed();
    void hear(std::uint64_t counter);
    std::size_t alike(const lease_record& a) const;
    std::size_t most_alike_own_leases() const;

    std::size_t nodes_, quorum_;
    std::array<slot, nodes_max> slots_{};
    node_set occupied_;
    fencing_token token_{};
    fencing_token highest_heard_{};
    std::vector<lease_record> own_leases_;  ///< As the nodes told of them.
    unsigned raises_ = 0;
    verdict verdict_ = verdict::pending;
};

}  // namespace lockcore
