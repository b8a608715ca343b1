#pragma once

#include <proto/acquire.hpp>
#include <proto/majority_round.hpp>
#include <redis/node_link.hpp>
#include <runtime/one_shot.hpp>

#include <memory>
#include <span>
#include <vector>

namespace lockcore {

using link_span = std::span<const std::shared_ptr<redis::node_link>>;

/// Drives one acquire machine: sends what it asks for, feeds it every answer, undoes it when it has failed.
///
/// Lives until the last answer has come or timed out, held by the commands in flight; the caller waits only for `done`.
class acquire_attempt final : public redis::reply_target, public std::enable_shared_from_this<acquire_attempt> {
  public:
    acquire_attempt(redis::lease_call call, link_span links);

    void start();
    /// Gives back whatever the attempt took, also what it may yet take (R7). For failures, and for a grant that nobody
    /// wants any more.
    void undo();

    one_shot done;
    const acquire& machine() const { return machine_; }
    monotonic_time started_at() const { return started_at_; }
    /// Each node's answer, for no_quorum.
    std::vector<node_answer> answers() const;
    /// True if a node refused because its epoch's tokens are used up.
    bool overflowed() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, node_reply reply) override;

  private:
    void perform(acquire::step step);

    redis::lease_call call_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    acquire machine_;
    monotonic_time started_at_{};
};

/// Drives one majority_round: RENEW, INSPECT or RELEASE. A renewal that succeeded puts the lease back on the nodes that
/// have lost it (TOP-UP): there it keeps others out, and counts for the holder only if the node's counter allows the
/// same token.
class round_attempt final : public redis::reply_target, public std::enable_shared_from_this<round_attempt> {
  public:
    round_attempt(command_kind kind, redis::lease_call call, fencing_token token, link_span links);

    void start();

    one_shot done;
    const majority_round& machine() const { return machine_; }
    monotonic_time started_at() const { return started_at_; }
    std::vector<node_answer> answers() const;

    const redis::lease_call& call() const override { return call_; }
    void on_reply(node_index node, command_kind kind, fencing_token token, node_reply reply) override;

  private:
    void top_up();

    command_kind kind_;
    redis::lease_call call_;
    fencing_token token_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    majority_round machine_;
    node_set topped_up_;
    monotonic_time started_at_{};
};

}  // namespace lockcore
