#pragma once

#include <lockcore/events.hpp>
#include <lockcore/lease.hpp>
#include <proto/acquire_machine.hpp>
#include <proto/majority_round.hpp>
#include <proto/survey.hpp>
#include <redis/node_link.hpp>
#include <runtime/one_shot_event.hpp>
#include <runtime/token_memory.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockcore {

using link_span = std::span<const std::shared_ptr<redis::node_link>>;

class round_attempt;

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
    void tick(monotonic_time now);

  private:
    milliseconds duration_;
    std::vector<std::shared_ptr<round_attempt>> rounds_;
    monotonic_time next_tick_{};
};

/// Drives one acquire_machine: sends its commands, passes in every answer, and undoes it if it fails.
///
/// An attempt with a previous lease is a hand-over of that lease. A node that did not replace the previous lease is
/// sent a RELEASE of it.
///
/// Lifetime: the commands in flight own the attempt until the last answer or timeout.
class acquire_attempt final : public redis::reply_target, public std::enable_shared_from_this<acquire_attempt> {
  public:
    /// In: `observed_tokens`: records the counter of every answer, of late ones too. `release_previous`: the RELEASE of
    ///     the previous lease, not started; null if there is none.
    acquire_attempt(redis::lease_call call, link_span links, std::shared_ptr<token_memory> observed_tokens,
                    std::shared_ptr<round_attempt> release_previous);

    void start();
    /// Releases the lease on every node that has it or may still grant it (R7). For a failed attempt, and for a grant
    /// that the caller has cancelled.
    void undo();
    /// For a granted attempt: reports event_kind::lease_thin to `events` if only a majority holds the lease after every
    /// node has answered or timed out.
    void report_if_thin(event_observer& events);

    /// Fired when the attempt is granted or has failed.
    one_shot_event done;
    /// Fired when previous_round() is decided.
    one_shot_event previous_released;
    const acquire_machine& machine() const { return machine_; }
    /// Returns the release of the previous lease: whether a majority released the lease, or its hold.
    const majority_round& previous_round() const { return previous_round_; }
    validity_time started_at() const { return started_at_; }
    /// Returns each node's answer, for errc::no_quorum.
    std::vector<node_answer> answers() const;
    /// Returns whether a node refused because the tokens of its epoch are used up.
    bool has_overflow() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void perform(acquire_machine::step step);
    void record_previous(node_index node, const node_reply& reply);
    void report_thin();

    redis::lease_call call_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    std::shared_ptr<token_memory> observed_tokens_;
    acquire_machine machine_;
    majority_round previous_round_;
    std::shared_ptr<round_attempt> release_previous_;
    event_observer* thin_observer_ = nullptr;
    validity_time started_at_{};
};

/// Drives one majority_round: RENEW, HOLD, INSPECT, RELEASE or CLOSE.
///
/// A successful RENEW restores the lease on the nodes that have lost it (TOP-UP). There it excludes other holders, and
/// the node counts for the holder only if its counter allows the same token.
class round_attempt final : public redis::reply_target, public std::enable_shared_from_this<round_attempt> {
  public:
    /// `repeater`: repeats the round on nodes that were not reached; null: it is not repeated.
    round_attempt(command_kind kind, redis::lease_call call, lease_claims claims, link_span links,
                  std::shared_ptr<round_repeater> repeater = nullptr);

    void start();
    /// Sends the command to these nodes only, without an outcome.
    void start_on(node_set targets);
    /// Sends the command again to the nodes that were not reached.
    ///
    /// Out: false if every node has answered.
    bool repeat();
    /// Prevents further TOP-UPs, for the hold was released.
    void disable_top_ups() { may_top_up_ = false; }

    one_shot_event done;
    const majority_round& machine() const { return machine_; }
    const lease_claims& claims() const { return claims_; }
    validity_time started_at() const { return started_at_; }
    std::vector<node_answer> answers() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void top_up();

    command_kind kind_;
    redis::lease_call call_;
    lease_claims claims_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    majority_round machine_;
    std::shared_ptr<round_repeater> repeater_;
    node_set topped_up_;
    node_set unconfirmed_;  ///< Nodes that may not have run the command.
    bool may_top_up_ = true, repeats_ = false;
    validity_time started_at_{};
};

/// Drives one survey: finds the lease of one resource.
class survey_attempt final : public redis::reply_target, public std::enable_shared_from_this<survey_attempt> {
  public:
    survey_attempt(resource_name resource, link_span links);

    void start();

    one_shot_event done;
    const survey& machine() const { return machine_; }
    std::vector<node_answer> answers() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    redis::lease_call call_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    survey machine_;
};

/// Some of the resources that have a lease on a node: the reply to LIST.
struct list_part {
    struct name {
        std::string text;
        bool without_ttl = false;  ///< The lease key has no ttl.
    };
    std::string cursor;  ///< The cursor of the next part; "0": this is the last part.
    std::vector<name> names;
};

/// Sends LIST to one node.
class list_attempt final : public redis::reply_target, public std::enable_shared_from_this<list_attempt> {
  public:
    list_attempt(std::string cursor, std::string pattern, std::shared_ptr<redis::node_link> link);

    void start();

    one_shot_event done;
    /// Returns the reply; empty if the node did not answer.
    const std::optional<list_part>& part() const { return part_; }

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    redis::lease_call call_;
    std::shared_ptr<redis::node_link> link_;
    std::optional<list_part> part_;
};

}  // namespace lockcore
