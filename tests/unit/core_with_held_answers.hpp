#pragma once

#include "acquire_answers.hpp"
#include "core_of_five_nodes.hpp"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

namespace lockcore {

/// A core with five nodes that have a reply of their own to each kind of command, and whose answers a test can delay.
class core_with_held_answers : public core_of_five_nodes {
  protected:
    using node_list = std::initializer_list<std::size_t>;
    static constexpr node_list every_node{0, 1, 2, 3, 4};

    core_with_held_answers() {
        for (node_replies& replies : replies_by_kind_)
            replies.fill(ok(0));
        set_reply(command_kind::top_up, every_node, reply_that_counts(true));
    }

    // --- nodes

    void answer_batch(const action::send_batch& a) override {
        sent_.push_back(a);
        if (held_[index_of(a.kind)][value_of(a.node)]) {
            withheld_.push_back(a);
        } else {
            core_of_five_nodes::answer_batch(a);
        }
    }
    node_reply reply_to(const action::send_batch& a) override {
        if (a.kind == command_kind::acquire) return core_of_five_nodes::reply_to(a);
        return replies_by_kind_[index_of(a.kind)][value_of(a.node)];
    }
    void set_reply(command_kind kind, node_list nodes, const node_reply& reply) {
        node_replies& replies = kind == command_kind::acquire ? replies_ : replies_by_kind_[index_of(kind)];
        for (const std::size_t n : nodes)
            replies[n] = reply;
    }
    static node_reply reply_that_counts(bool counts, std::uint64_t number = 0) {
        node_reply reply = ok(number);
        reply.counts = counts;
        return reply;
    }
    /// Returns the reply of a node where the lease does not count: LOST with its stamp.
    static node_reply lost_with_stamp(std::uint64_t stamp) {
        node_reply reply = answer(reply_status::lost, stamp);
        reply.has_stamp = true;
        return reply;
    }

    // --- answers that are withheld

    /// From now on the answers of these nodes to such commands wait for deliver().
    void hold(command_kind kind, node_list nodes = every_node) {
        for (const std::size_t n : nodes)
            held_[index_of(kind)].set(n);
    }
    /// Answers the batches of these nodes that are withheld now, with the reply that each node has now.
    void deliver(command_kind kind, node_list nodes = every_node) {
        std::vector<action::send_batch> due;
        for (const std::size_t n : nodes) {
            while (auto next = take_withheld(kind, n))
                due.push_back(std::move(*next));
        }
        for (const action::send_batch& a : due)
            core_of_five_nodes::answer_batch(a);
    }
    /// Answers the first withheld batch of the node with the error of the whole script call.
    void deliver_error(command_kind kind, std::size_t n, const std::string& error) {
        const auto next = take_withheld(kind, n);
        ASSERT_TRUE(next);
        step(input::batch_answered{next->node, next->connection, next->batch, {}, error});
    }
    std::optional<action::send_batch> take_withheld(command_kind kind, std::size_t n) {
        const auto found =
            std::ranges::find_if(withheld_, [&](const auto& a) { return a.kind == kind && value_of(a.node) == n; });
        if (found == withheld_.end()) return std::nullopt;
        action::send_batch next = std::move(*found);
        withheld_.erase(found);
        return next;
    }

    // --- what was sent

    std::size_t count_sent(command_kind kind, node_list nodes = every_node) const {
        return static_cast<std::size_t>(std::ranges::count_if(sent_, [&](const action::send_batch& a) {
            return a.kind == kind && std::ranges::find(nodes, value_of(a.node)) != nodes.end();
        }));
    }
    /// Returns the arguments of the last command of a kind that was sent to any node.
    const lease_call& last_sent(command_kind kind) const {
        const auto last =
            std::find_if(sent_.rbegin(), sent_.rend(), [kind](const action::send_batch& a) { return a.kind == kind; });
        if (last == sent_.rend()) throw std::logic_error("no such command was sent");
        return last->items.front().target->call();
    }

    // --- calls

    template <class Input>
    call_id start(Input what) {
        const call_id call{++calls_};
        what.call = call;
        step(std::move(what));
        return call;
    }
    lease_claims grant(milliseconds ttl = 1s) {
        if (!acquire(make_request(ttl))) throw std::logic_error("no lease was granted");
        return (*lease_)->claims;
    }
    call_id renew(const lease_claims& claims, milliseconds ttl = 1s) {
        return start(input::renew{{}, claims, ttl, {}});
    }
    call_id inspect(const lease_claims& claims) { return start(input::inspect{{}, claims}); }
    call_id release(const lease_claims& claims) { return start(input::release{{}, claims, {}}); }
    call_id revoke(const lease_claims& claims) { return start(input::revoke{{}, claims, {}, {}, {}}); }
    call_id close(const lease_claims& claims) { return start(input::close_to_new_holds{{}, claims}); }

    bool is_answered(call_id call) const { return answers_.contains(call); }
    /// Returns why the call failed; empty: it succeeded, or is not answered.
    std::optional<errc> failure_of(call_id call) const {
        const auto found = answers_.find(call);
        if (found == answers_.end()) return std::nullopt;
        return std::visit(
            [](const auto& outcome) {
                return outcome.has_value() ? std::optional<errc>() : std::optional(outcome.error().code);
            },
            found->second);
    }
    bool succeeded(call_id call) const { return is_answered(call) && !failure_of(call); }

  private:
    using node_replies = std::array<node_reply, 5>;
    static constexpr std::size_t index_of(command_kind kind) { return static_cast<std::size_t>(kind); }

    std::array<node_replies, command_kinds> replies_by_kind_;
    std::array<node_set, command_kinds> held_{};
    std::vector<action::send_batch> withheld_, sent_;
};

}  // namespace lockcore
