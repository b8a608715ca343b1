#pragma once

#include <lockcore/lease.hpp>
#include <proto/acquire.hpp>
#include <proto/majority_round.hpp>
#include <proto/survey.hpp>
#include <redis/node_link.hpp>
#include <runtime/one_shot.hpp>
#include <runtime/token_memory.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockcore {

using link_span = std::span<const std::shared_ptr<redis::node_link>>;

/// Drives one acquire machine: sends what it asks for, feeds it every answer, undoes it when it has failed.
///
/// Where the call carries a previous lease, this is its hand-over: `given_back` says what became of that lease.
/// Lives until the last answer has come or timed out, held by the commands in flight.
class acquire_attempt final : public redis::reply_target, public std::enable_shared_from_this<acquire_attempt> {
  public:
    /// `heard`: told of every counter, also of those that come late.
    acquire_attempt(redis::lease_call call, link_span links, std::shared_ptr<token_memory> heard);

    void start();
    /// Gives back whatever the attempt took, also what it may yet take (R7). For failures, and for a grant that nobody
    /// wants any more.
    void undo();

    /// Granted, or failed.
    one_shot done;
    /// It is known whether a majority held the previous lease and let it go, or counted one hold off it.
    one_shot given_back;
    const acquire& machine() const { return machine_; }
    const majority_round& previous() const { return previous_; }
    validity_time started_at() const { return started_at_; }
    /// Each node's answer, for no_quorum.
    std::vector<node_answer> answers() const;
    /// True if a node refused because its epoch's tokens are used up.
    bool overflowed() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void perform(acquire::step step);
    void note_previous(node_index node, const node_reply& reply);

    redis::lease_call call_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    std::shared_ptr<token_memory> heard_;
    acquire machine_;
    majority_round previous_;
    validity_time started_at_{};
};

/// Drives one majority_round: RENEW, HOLD, INSPECT or RELEASE.
///
/// A renewal that succeeded puts the lease back on the nodes that have lost it (TOP-UP): there it keeps others out, and
/// counts for the holder only if the node's counter allows the same token. A release after which the lease is gone
/// takes it off those nodes as well that had missed an earlier release of a hold.
class round_attempt final : public redis::reply_target, public std::enable_shared_from_this<round_attempt> {
  public:
    round_attempt(command_kind kind, redis::lease_call call, lease_claims claims, link_span links);

    void start();
    /// Asks only these nodes; nobody waits for the outcome.
    void start_on(node_set to);
    /// HOLD: takes the hold back wherever it was counted, also where that comes out late. Never elsewhere: another's
    /// hold would go.
    void take_hold_back();
    /// From now on the lease is not put back anywhere: it was released.
    void no_more_top_ups() { may_top_up_ = false; }

    one_shot done;
    const majority_round& machine() const { return machine_; }
    const lease_claims& claims() const { return claims_; }
    validity_time started_at() const { return started_at_; }
    std::vector<node_answer> answers() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    void top_up();
    void finish_release();
    void take_back_on(node_index node);

    command_kind kind_;
    redis::lease_call call_;
    lease_claims claims_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    majority_round machine_;
    node_set topped_up_, holds_left_, finished_;
    bool may_top_up_ = true, taking_back_ = false;
    validity_time started_at_{};
};

/// Drives one survey: what stands on the nodes for one resource.
class survey_attempt final : public redis::reply_target, public std::enable_shared_from_this<survey_attempt> {
  public:
    survey_attempt(resource_name resource, link_span links);

    void start();

    one_shot done;
    const survey& machine() const { return machine_; }
    std::vector<node_answer> answers() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    redis::lease_call call_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    survey machine_;
};

/// Some of the names that have a lease on a node.
struct list_part {
    struct name {
        std::string text;
        bool never_runs_out = false;  ///< Its key has no ttl.
    };
    std::string cursor;  ///< Where the next part begins; "0": this was the last.
    std::vector<name> names;
};

/// Asks one node for the next part of the names that have a lease there.
class list_attempt final : public redis::reply_target, public std::enable_shared_from_this<list_attempt> {
  public:
    list_attempt(std::string cursor, std::string pattern, std::shared_ptr<redis::node_link> link);

    void start();

    one_shot done;
    /// Nothing if the node did not answer.
    const std::optional<list_part>& part() const { return part_; }

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, const node_reply& reply) override;

  private:
    redis::lease_call call_;
    std::shared_ptr<redis::node_link> link_;
    std::optional<list_part> part_;
};

}  // namespace lockcore
