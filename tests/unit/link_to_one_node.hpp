#pragma once

#include <proto/node_link.hpp>

#include "core_of_five_nodes.hpp"

#include <algorithm>

namespace lockcore {

/// The other nodes of a cluster.
class other_nodes final : public cluster_view {
  public:
    std::string find_duplicate(node_index, const std::string&) const override { return {}; }
    epoch highest_epoch() const override { return {}; }
    epoch highest_plausible_epoch(node_index) const override { return epoch{100}; }
    std::vector<fast_readmission::source> find_sources(node_index, std::size_t) const override { return sources; }

    std::vector<fast_readmission::source> sources;
};

/// A command, and the answers that it got.
class answered_command final : public reply_target {
  public:
    const lease_call& call() const override { return call_; }
    void on_reply(node_index, command_kind, fencing_token, const node_reply& reply) override {
        answers.push_back(reply.status);
    }

    std::vector<reply_status> answers;

  private:
    lease_call call_;
};

/// A link whose node and register answer when the test says so.
class link_to_one_node : public testing::Test {
  protected:
    static constexpr node_index only{0};
    using command = std::shared_ptr<answered_command>;
    using answers = std::vector<reply_status>;

    link_to_one_node() {
        settings_.nodes.push_back({"only", "127.0.0.1", 1, {}, {}, {}, {}});
        link_ = std::make_unique<node_link>(ctx_, only, others_, true);
        ctx_.now.monotonic = monotonic_time{1h};
        step([this] { link_->start(); });
    }

    /// Calls the function as a step of a core does, and keeps the actions that follow.
    template <class Function>
    void step(Function what) {
        what();
        ctx_.run_step_end_calls();
        for (core_action& one : std::exchange(ctx_.actions, {})) {
            if (auto* sent = std::get_if<action::send_batch>(&one)) sent_.push_back(std::move(*sent));
            if (auto* asked = std::get_if<action::ask_node>(&one)) asked_.push_back(std::move(*asked));
            if (auto* asked = std::get_if<action::ask_register>(&one)) register_.push_back(std::move(*asked));
            if (std::holds_alternative<action::close_connection>(one)) ++closed_;
            if (const auto* opened = std::get_if<action::open_connection>(&one)) connection_ = opened->connection;
        }
    }
    /// Lets time pass with its ticks and timers.
    void pass(milliseconds time) {
        const milliseconds tick = core_context::tick_length(settings_);
        for (milliseconds passed{0}; passed < time; passed += tick) {
            ctx_.now.monotonic += tick;
            step([this] { ctx_.timers.run_due(ctx_.now.monotonic); });
            step([this] { link_->tick(); });
        }
    }

    // --- the connection and the identification

    void connect() {
        step([this] { link_->connected({only, connection_}); });
    }
    void disconnect() {
        step([this] { link_->disconnected({only, connection_, "it was closed"}); });
    }
    /// Loses the connection, if there is one, and gets the next one.
    void reconnect() {
        disconnect();
        pass(node_supervisor::reconnect_max);
        connect();
    }
    void answer_node(node_response::any response) {
        step([&] { link_->node_answered({only, connection_, std::move(response)}); });
    }
    void identify_as(node_facts facts) {
        ASSERT_TRUE(std::holds_alternative<node_request::identify>(asked_.back().request));
        answer_node(identified(std::move(facts)));
    }
    static node_response::identified identified(node_facts facts) {
        node_response::identified found;
        found.facts = std::move(facts);
        found.has_record = true;
        return found;
    }
    /// Connects to a node that is admitted.
    void vote() {
        connect();
        identify_as(admitted_node(7));
        EXPECT_TRUE(link_->is_voting());
    }
    template <class Request>
    auto count_asked() const {
        return std::ranges::count_if(asked_,
                                     [](const auto& one) { return std::holds_alternative<Request>(one.request); });
    }

    // --- commands

    /// Passes a command to the link. If it is refused it has its answer already.
    command send(command_kind kind) {
        auto one = std::make_shared<answered_command>();
        const reply_status status = link_->send(kind, one, fencing_token{});
        if (status != reply_status::ok) one->answers.push_back(status);
        return one;
    }
    void flush() {
        step([this] { link_->flush(); });
    }
    command send_now(command_kind kind) {
        command one = send(kind);
        flush();
        return one;
    }
    /// Answers a script call: with OK to each command, or with an error.
    void answer_batch(const action::send_batch& sent, std::string error = {}) {
        std::vector<node_reply> replies(sent.items.size());
        for (node_reply& one : replies)
            one.status = reply_status::ok;
        step([&] { link_->batch_answered({only, sent.connection, sent.batch, std::move(replies), std::move(error)}); });
    }

    config settings_;
    no_secrets secrets_;
    other_nodes others_;
    core_context ctx_{settings_, secrets_, secrets_};
    std::unique_ptr<node_link> link_;
    connection_number connection_{};  ///< The one that was opened last.
    int closed_ = 0;                  ///< How many were closed.
    std::vector<action::send_batch> sent_;
    std::vector<action::ask_node> asked_;
    std::vector<action::ask_register> register_;
};

}  // namespace lockcore
