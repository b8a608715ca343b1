#pragma once

#include <lockcore/types.hpp>
#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <array>
#include <optional>
#include <vector>

namespace lockcore {

/// The state machine of one attempt to acquire a lease (docs/protocol.md R1–R5).
///
/// It first sends ACQUIRE to every node. After a majority has answered OK, T is the highest counter of these replies,
/// and the attempt is complete when a majority of nodes is *stamped* with exactly T: by its reply to ACQUIRE, or by
/// CONFIRM(T). A node that reports a counter above T raises T for all nodes, and the stamps are dropped.
///
/// The driver performs each step and passes in every answer, in any order, late ones too. The machine has no clock: the
/// driver tests the validity (R6) of a granted attempt, and undoes a failed attempt on undo_targets().
///
/// Threads: not safe.
class acquire_machine {
  public:
    /// The command to send next; none if `targets` is empty.
    struct step {
        node_set targets;
        command_kind kind = command_kind::acquire;
        fencing_token token{};  ///< The T of CONFIRM.
    };
    enum class verdict {
        pending,
        granted,    ///< A majority is stamped with token().
        locked,     ///< A majority answered, and another lease is on too many nodes.
        no_quorum,  ///< Too few nodes can answer; or too few to say whether the conflicting lease is the holder's own.
    };
    /// How often T may be raised (R5) before the attempt fails; contention in a shared counter could raise it forever.
    static constexpr unsigned raises_max = 16;

    explicit acquire_machine(std::size_t nodes);

    step start();
    step acquire_answered(node_index node, const node_reply& reply);
    /// Takes the answer to CONFIRM(sent).
    step confirm_answered(node_index node, fencing_token sent, const node_reply& reply);

    verdict outcome() const { return verdict_; }
    fencing_token token() const { return token_; }
    std::size_t stamps() const { return count(phase::stamped); }
    /// Returns whether the attempt is granted and no answer is outstanding that could stamp another node (answers after
    /// a timeout do not count).
    bool is_settled() const {
        return verdict_ == verdict::granted && count(phase::acquiring) + count(phase::confirming) == 0;
    }
    /// Returns the highest counter or token in any reply, from which the next hint is made.
    fencing_token highest_observed_token() const { return highest_observed_token_; }
    /// Returns, if locked, the time until a majority of the nodes is free by the ttls in the replies; zero if unknown.
    milliseconds remaining() const;
    /// Returns, if locked, the conflicting lease of the same holder, where a majority reports it under one token. A
    /// lease on fewer nodes may come from a late request.
    std::optional<lease_record> own_lease() const;
    /// Returns the nodes that reported a value under a lease key that is no lease.
    const node_set& occupied() const { return occupied_; }
    /// Returns the nodes that may have the lease of this attempt: all but those that refused it.
    node_set undo_targets() const;
    /// Returns the last answer of a node.
    reply_status answer_of(node_index node) const { return slots_[value_of(node)].answer; }

  private:
    enum class phase : std::uint8_t {
        acquiring,   ///< ACQUIRE is sent and not answered.
        unstamped,   ///< Holds this lease with a counter other than T, or T is not yet chosen.
        confirming,  ///< CONFIRM(T) is sent and not answered.
        stamped,
        excluded,  ///< Cannot be stamped, unless an answer arrives after its timeout.
    };
    struct slot {
        phase state = phase::acquiring;
        bool acquired = false;  ///< ACQUIRE answered OK, and no later answer contradicts it.
        std::uint64_t counter = 0;
        milliseconds remaining{0};
        reply_status answer = reply_status::pending;
    };

    std::size_t count(phase p) const;
    static bool may_have_lease(const slot& s);
    /// Sets the verdict if the answers decide it, or raises T.
    step evaluate();
    /// Raises T if the nodes that can still be stamped with it are no majority: one with a counter above T can't be.
    step raise_if_needed();
    /// Returns why the attempt has failed; `pending` while outstanding answers may tell.
    verdict find_cause() const;
    step choose_token();
    step raise_to(fencing_token floor);
    step confirm_where_needed();
    void observe_token(std::uint64_t counter);
    std::size_t count_reports_of(const lease_record& lease) const;
    std::size_t most_reports_of_one_lease() const;

    std::size_t nodes_, quorum_;
    std::array<slot, nodes_max> slots_{};
    node_set occupied_;
    fencing_token token_{};
    fencing_token highest_observed_token_{};
    std::vector<lease_record> own_leases_;  ///< The leases of this holder, one for each node that reported one.
    unsigned raises_ = 0;
    verdict verdict_ = verdict::pending;
};

}  // namespace lockcore
