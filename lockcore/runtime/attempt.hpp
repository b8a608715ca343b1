#pragma once

#include <lockcore/events.hpp>
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

class round_attempt;

/// Rounds that some nodes could not be asked, or whose answer a broken connection took along: these nodes are asked
/// again until each has answered, or what the round was about has run out.
///
/// Limits: rounds_max at a time; one more is not repeated, and its leases run out on the nodes that it did not reach.
class round_repeater {
  public:
    static constexpr std::size_t rounds_max = 16'384;
    static constexpr milliseconds pause{100};

    explicit round_repeater(milliseconds longest) : longest_(longest) {}

    void add(std::shared_ptr<round_attempt> round);
    /// Called at a steady pace.
    void tick(monotonic_time now);

  private:
    struct entry {
        std::shared_ptr<round_attempt> round;
        monotonic_time until;
    };
    milliseconds longest_;
    std::vector<entry> rounds_;
    monotonic_time next_{};
};

/// Drives one acquire machine: sends what it asks for, feeds it every answer, undoes it when it has failed.
///
/// Where the call carries a previous lease, this is its hand-over: `given_back` says what became of that lease, and
/// where a node did not take it from there, it is released behind the attempt.
/// Lives until the last answer has come or timed out, held by the commands in flight.
class acquire_attempt final : public redis::reply_target, public std::enable_shared_from_this<acquire_attempt> {
  public:
    /// `heard`: told of every counter, also of those that come late. `release_previous`: of the lease that is handed
    /// over, not begun; empty where there is none.
    acquire_attempt(redis::lease_call call, link_span links, std::shared_ptr<token_memory> heard,
                    std::shared_ptr<round_attempt> release_previous);

    void start();
    /// Gives back whatever the attempt took, also what it may yet take (R7). For failures, and for a grant that nobody
    /// wants any more.
    void undo();
    /// For a grant that was answered: tells `events` of event_kind::lease_thin if it turns out to be one, once every
    /// node has answered or its time is over.
    void watch_thin(event_observer& events);

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
    void report_thin();

    redis::lease_call call_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    std::shared_ptr<token_memory> heard_;
    acquire machine_;
    majority_round previous_;
    std::shared_ptr<round_attempt> release_previous_;
    event_observer* thin_to_ = nullptr;
    validity_time started_at_{};
};

/// Drives one majority_round: RENEW, HOLD, INSPECT, RELEASE or CLOSE.
///
/// A renewal that succeeded puts the lease back on the nodes that have lost it (TOP-UP): there it keeps others out, and
/// counts for the holder only if the node's counter allows the same token.
class round_attempt final : public redis::reply_target, public std::enable_shared_from_this<round_attempt> {
  public:
    /// `repeater`: has nodes that did not hear of it asked again; null: they are not.
    round_attempt(command_kind kind, redis::lease_call call, lease_claims claims, link_span links,
                  std::shared_ptr<round_repeater> repeater = nullptr);

    void start();
    /// Asks only these nodes; nobody waits for the outcome.
    void start_on(node_set to);
    /// Asks those again that did not hear of it, where they can be asked. Out: false: all have answered.
    bool repeat();
    /// From now on the lease is not put back anywhere: the hold was released.
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

    command_kind kind_;
    redis::lease_call call_;
    lease_claims claims_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    majority_round machine_;
    std::shared_ptr<round_repeater> repeater_;
    node_set topped_up_, unheard_;  ///< unheard_: asked, and the question may not have arrived.
    bool may_top_up_ = true, repeats_ = false;
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
