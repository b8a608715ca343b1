#pragma once

#include <proto/acquire_machine.hpp>
#include <proto/core_context.hpp>
#include <proto/epochs.hpp>
#include <proto/majority_round.hpp>
#include <proto/node_link.hpp>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockcore {

using link_span = std::span<const std::unique_ptr<node_link>>;

class round_attempt;

/// Returns what each node answered to a machine's commands, for a failure.
template <class Machine>
std::vector<node_answer> collect_answers(const Machine& machine, link_span links) {
    std::vector<node_answer> out;
    out.reserve(links.size());
    for (std::size_t n = 0; n < links.size(); ++n) {
        node_status status = links[n]->status();
        out.push_back({std::move(status.name), to_string(machine.answer_of(static_cast<node_index>(n))),
                       std::move(status.detail), status.quarantine_left});
    }
    return out;
}

/// Repeats rounds on the nodes that could not be reached, or whose connection broke before the answer, until each of
/// them has answered or the lease has expired.
///
/// Limits: rounds_max at a time; a further round is not repeated, and its lease expires on the nodes not reached.
class round_repeater {
  public:
    static constexpr std::size_t rounds_max = 16'384;
    static constexpr milliseconds interval{100};

    /// `duration`: for how long after its start a round is repeated.
    explicit round_repeater(milliseconds duration) : duration_(duration) {}

    void add(std::shared_ptr<round_attempt> round);
    /// Repeats the rounds once in each interval.
    void tick(const step_time& now);

  private:
    milliseconds duration_;
    std::vector<std::shared_ptr<round_attempt>> rounds_;
    monotonic_time next_tick_{};
};

/// Drives one acquire_machine: sends its commands, passes in every answer, and undoes it if it fails.
///
/// An attempt with a previous lease is a handoff of that lease. A node that did not replace the previous lease is
/// sent a RELEASE of it.
///
/// Lifetime: the commands in flight own the attempt until the last answer or timeout.
class acquire_attempt final : public reply_target, public std::enable_shared_from_this<acquire_attempt> {
  public:
    /// In: `observed_tokens`: records the counter of each answer within D that is plausible, also of an ACQUIRE that is
    ///     answered after the grant. `release_previous`: the RELEASE of the previous lease, not started; null if there
    ///     is none.
    acquire_attempt(core_context& ctx, lease_call call, link_span links, token_memory& observed_tokens,
                    std::shared_ptr<round_attempt> release_previous);

    void start();
    /// `then`: is called once, at a flush, when the attempt is granted or has failed.
    void when_decided(decision<acquire_attempt>::continuation then) {
        decided_.then(shared_from_this(), std::move(then));
    }
    /// `then`: is called once, at a flush, when previous_round() is decided.
    void when_previous_released(decision<acquire_attempt>::continuation then) {
        previous_released_.then(shared_from_this(), std::move(then));
    }
    /// Releases the lease on every node that has it or may still grant it (R7). For a failed attempt, and for a grant
    /// that the caller has cancelled.
    void undo();
    /// For a granted attempt: records event_kind::lease_thin if only a majority holds the lease after every node has
    /// answered or timed out.
    void report_if_thin();

    const acquire_machine& machine() const { return machine_; }
    /// Returns the release of the previous lease: whether a majority released the lease, or its hold.
    const majority_round& previous_round() const { return previous_round_; }
    validity_time started_at() const { return started_at_; }
    /// Returns each node's answer, for errc::no_quorum.
    std::vector<node_answer> answers() const;
    /// Returns whether the grant needs a node that refused because the tokens of its epoch are used up: the others are
    /// no majority.
    bool needs_new_epoch() const;
    /// Returns, if a majority of the nodes answered with implausible tokens, the highest epoch that a majority of the
    /// nodes has reached. Some of them are honest, so the register has drawn it.
    std::optional<epoch> implausible_epoch_of_majority() const;

    const lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void perform(acquire_machine::step step);
    /// Returns the reply, or an error in its place if its token is implausible (docs/protocol.md, CLAIMS OF ONE NODE).
    node_reply discount_if_implausible(node_index node, command_kind kind, const node_reply& reply);
    void record_previous(node_index node, const node_reply& reply);
    void report_thin();

    core_context& ctx_;
    decision<acquire_attempt> decided_, previous_released_;
    lease_call call_;
    link_span links_;
    token_memory& observed_tokens_;
    acquire_machine machine_;
    majority_round previous_round_;
    std::shared_ptr<round_attempt> release_previous_;
    std::array<epoch, nodes_max> implausible_epochs_{};  ///< By node; 0: its tokens were plausible.
    node_set ignored_grants_;                            ///< Nodes that granted the lease under an implausible token.
    bool reports_thin_ = false;
    validity_time started_at_{};
};

/// Drives one majority_round: RENEW, HOLD, INSPECT, RELEASE or CLOSE.
///
/// A successful RENEW restores the lease on the nodes that have lost it, or where it does not count (TOP-UP, UPGRADE).
class round_attempt final : public reply_target, public std::enable_shared_from_this<round_attempt> {
  public:
    /// `repeater`: repeats the round on nodes that were not reached; null: it is not repeated.
    round_attempt(core_context& ctx, command_kind kind, lease_call call, lease_claims claims, link_span links,
                  round_repeater* repeater = nullptr);

    using continuation = decision<round_attempt>::continuation;

    /// `then`: is called once, at a flush, when the round is decided; null: nobody waits for that.
    void start(continuation then = nullptr);
    /// Sends the command to these nodes only, without an outcome.
    void start_on(node_set targets);
    /// Sends the command again to the nodes that were not reached.
    ///
    /// Out: false if every node has answered.
    bool repeat();
    /// Prevents further TOP-UPs, for the hold was released.
    void disable_top_ups() { *may_top_up_ = false; }
    bool may_top_up() const { return *may_top_up_; }
    /// Makes the lease count on the nodes that have it without counting it (UPGRADE). `then` gets this round, and
    /// whether a majority counts the lease now; it is called once, at the end of a step.
    void upgrade(std::function<void(round_attempt&, bool)> then);

    const majority_round& machine() const { return machine_; }
    command_kind kind() const { return kind_; }
    const lease_claims& claims() const { return claims_; }
    validity_time started_at() const { return started_at_; }

    const lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void top_up();
    void top_up_node(std::size_t n, validity_time until, std::function<void(bool)> finished);

    core_context& ctx_;
    decision<round_attempt> decided_;
    command_kind kind_;
    lease_call call_;
    lease_claims claims_;
    link_span links_;
    majority_round machine_;
    round_repeater* repeater_;
    node_set topped_up_;
    std::shared_ptr<bool> may_top_up_ = std::make_shared<bool>(true);
    node_set unconfirmed_;  ///< Nodes that may not have run the command.
    bool repeats_ = false;
    validity_time started_at_{};
};

/// Sends TOP-UP to one node, and after that UPGRADE if the lease does not count there yet.
class top_up_attempt final : public reply_target, public std::enable_shared_from_this<top_up_attempt> {
  public:
    /// In: `call`: its `seen` is the number that the node answered for the lease; empty: the lease may not be there.
    ///     `allowed`: becomes false when the hold is released. `until`: nothing is sent after that. `finished`: gets
    ///     whether the lease counts on the node; may be null.
    top_up_attempt(core_context& ctx, lease_call call, fencing_token token, node_link& link,
                   std::shared_ptr<const bool> allowed, validity_time until, std::function<void(bool)> finished);

    void start();

    const lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void finish(bool counts);

    core_context& ctx_;
    lease_call call_;
    fencing_token token_;
    node_link& link_;
    std::shared_ptr<const bool> allowed_;
    validity_time until_;
    std::function<void(bool)> finished_;
    bool upgrades_ = false;  ///< The second request was sent.
};

/// Drives one survey: finds the lease of one resource.
class survey_attempt final : public reply_target, public std::enable_shared_from_this<survey_attempt> {
  public:
    /// `call`: names one resource, and which lease is looked for (lease_call::tail). `first`: the index of the first
    /// of `links`.
    survey_attempt(core_context& ctx, lease_call call, link_span links, std::size_t first = 0);

    /// `then`: is called once, at a flush, when the survey is decided.
    void start(decision<survey_attempt>::continuation then);

    const survey& machine() const { return machine_; }
    std::vector<node_answer> answers() const;

    const lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    decision<survey_attempt> decided_;
    lease_call call_;
    link_span links_;
    std::size_t first_;
    survey machine_;
};

/// Sends LIST to one node.
class list_attempt final : public reply_target, public std::enable_shared_from_this<list_attempt> {
  public:
    list_attempt(core_context& ctx, std::string cursor, std::string pattern, node_link& link);

    /// `then`: is called once, at a flush, when the node has answered or timed out.
    void start(decision<list_attempt>::continuation then);

    /// Returns the reply; empty if the node did not answer.
    const std::optional<list_part>& part() const { return part_; }

    const lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    decision<list_attempt> decided_;
    lease_call call_;
    node_link& link_;
    std::optional<list_part> part_;
};

}  // namespace lockcore
