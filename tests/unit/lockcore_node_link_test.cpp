// The commands to one node and their answers: what is sent, when and on which connection (docs/protocol.md R9).
#include "link_to_one_node.hpp"

namespace lockcore {
namespace {

constexpr bool ends_leases(command_kind kind) {
    return kind == command_kind::release || kind == command_kind::undo || kind == command_kind::close;
}

class node_link_test : public link_to_one_node {
  protected:
    node_link_test() { vote(); }
    /// Sends a command that is not answered in time.
    command send_overdue(command_kind kind) {
        command one = send_now(kind);
        pass(settings_.node_timeout + core_context::tick_length(settings_));
        EXPECT_EQ(one->answers, answers{reply_status::timeout});
        return one;
    }
    /// Passes a command of each kind to the link and returns the kinds that are answered with `timeout` at once.
    std::vector<command_kind> send_each_kind() {
        std::vector<command_kind> refused;
        for (std::size_t k = 0; k < command_kinds; ++k) {
            const auto kind = static_cast<command_kind>(k);
            if (send(kind)->answers == answers{reply_status::timeout}) refused.push_back(kind);
        }
        return refused;
    }
};

TEST_F(node_link_test, only_top_up_always_takes_its_source_along) {
    send_each_kind();
    flush();
    ASSERT_EQ(sent_.size(), command_kinds);
    for (const action::send_batch& sent : sent_)
        EXPECT_EQ(sent.with_source, sent.kind == command_kind::top_up) << static_cast<int>(sent.kind);
}

TEST_F(node_link_test, unknown_script_is_sent_again_with_its_source_once) {
    const command one = send_now(command_kind::renew);
    answer_batch(sent_[0], "NOSCRIPT");
    ASSERT_EQ(sent_.size(), 2U);
    EXPECT_TRUE(sent_[1].with_source);
    EXPECT_EQ(sent_[1].items.front().target, one);
    EXPECT_EQ(one->answers, answers{});
    answer_batch(sent_[1], "NOSCRIPT");
    EXPECT_EQ(sent_.size(), 2U);
    EXPECT_EQ(one->answers, answers{reply_status::error});
}

TEST_F(node_link_test, overdue_command_is_not_sent_again) {
    const command one = send_overdue(command_kind::renew);
    answer_batch(sent_[0], "NOSCRIPT");
    EXPECT_EQ(sent_.size(), 1U);
    EXPECT_EQ(one->answers, (answers{reply_status::timeout, reply_status::error}));
    EXPECT_TRUE(link_->is_voting());
}

TEST_F(node_link_test, queued_command_is_not_sent_without_the_connection) {
    const command one = send(command_kind::release);
    disconnect();
    EXPECT_EQ(one->answers, answers{});
    flush();
    EXPECT_TRUE(sent_.empty());
    EXPECT_EQ(one->answers, answers{reply_status::unreachable});
}

TEST_F(node_link_test, queued_command_is_not_sent_without_the_vote) {
    send_now(command_kind::renew);
    const command one = send(command_kind::release);
    answer_batch(sent_[0], "UNINIT");
    flush();
    EXPECT_EQ(sent_.size(), 1U);
    EXPECT_EQ(one->answers, answers{reply_status::unreachable});
}

TEST_F(node_link_test, overdue_node_gets_only_what_ends_leases) {
    send_overdue(command_kind::renew);
    const auto refused = send_each_kind();
    EXPECT_EQ(refused.size(), command_kinds - 3);
    EXPECT_TRUE(std::ranges::none_of(refused, ends_leases));
    flush();
    ASSERT_EQ(sent_.size(), 4U);
    for (std::size_t n = 1; n < sent_.size(); ++n)
        EXPECT_TRUE(ends_leases(sent_[n].kind));
    answer_batch(sent_[0]);
    EXPECT_EQ(send_each_kind(), std::vector<command_kind>{}) << "it has answered";
}

/// A link to a node that may leave 16 commands unanswered.
class link_with_a_limit : public node_link_test {
  protected:
    static constexpr std::size_t limit = 16;
    link_with_a_limit() { settings_.node_queue_max = limit; }
    void fill() {
        for (std::size_t n = 0; n < limit; ++n)
            EXPECT_EQ(send(command_kind::release)->answers, answers{});
    }
    void expect_full() { EXPECT_EQ(send(command_kind::release)->answers, answers{reply_status::unreachable}); }
    /// Requires that every earlier command has been answered: the link takes as many again.
    void expect_room() {
        fill();
        expect_full();
    }
};

TEST_F(link_with_a_limit, command_above_it_is_refused_as_unreachable) {
    fill();
    expect_full();
    flush();
    ASSERT_EQ(sent_.size(), 1U);
    EXPECT_EQ(sent_[0].items.size(), limit);
    expect_full();
    answer_batch(sent_[0]);
    expect_room();
}

TEST_F(link_with_a_limit, commands_without_an_answer_in_time_still_count) {
    fill();
    flush();
    pass(settings_.node_timeout + core_context::tick_length(settings_));
    expect_full();
    answer_batch(sent_[0], "NOSCRIPT");
    expect_room();
}

TEST_F(link_with_a_limit, commands_that_are_not_sent_do_not_count) {
    fill();
    disconnect();
    flush();
    reconnect();
    identify_as(admitted_node(7));
    expect_room();
}

TEST_F(link_with_a_limit, commands_of_a_lost_connection_do_not_count) {
    fill();
    flush();
    reconnect();
    identify_as(admitted_node(7));
    expect_room();
}

TEST_F(link_with_a_limit, refused_commands_do_not_count) {
    fill();
    flush();
    answer_batch(sent_[0], "UNINIT");
    identify_as(admitted_node(7));
    expect_room();
}

// --- the loss of the vote and of the connection

TEST_F(node_link_test, second_script_error_starts_no_second_identification) {
    send_now(command_kind::renew);
    send_now(command_kind::release);
    asked_.clear();
    for (const action::send_batch& sent : std::vector(sent_))
        answer_batch(sent, "UNINIT");
    EXPECT_EQ(count_asked<node_request::identify>(), 1);
    identify_as(admitted_node(7));
    EXPECT_TRUE(link_->is_voting());
}

TEST_F(node_link_test, lost_connection_answers_all_commands_in_flight) {
    const std::vector commands{send(command_kind::renew), send(command_kind::renew), send(command_kind::release)};
    flush();
    ASSERT_EQ(sent_.size(), 2U);
    disconnect();
    for (const command& one : commands)
        EXPECT_EQ(one->answers, answers{reply_status::broken});
    disconnect();
    for (const command& one : commands)
        EXPECT_EQ(one->answers, answers{reply_status::broken}) << "once";
}

TEST_F(node_link_test, answer_to_a_command_of_an_older_connection_is_ignored) {
    const command lost = send_now(command_kind::renew);
    reconnect();
    identify_as(admitted_node(7));
    const command one = send_now(command_kind::renew);
    answer_batch(sent_[0]);
    EXPECT_EQ(lost->answers, answers{reply_status::broken});
    action::send_batch mistaken = sent_[1];
    mistaken.connection = sent_[0].connection;
    answer_batch(mistaken);
    EXPECT_EQ(one->answers, answers{});
    answer_batch(sent_[1]);
    EXPECT_EQ(one->answers, answers{reply_status::ok});
}

TEST_F(node_link_test, answer_after_the_end_is_ignored) {
    const command one = send_now(command_kind::renew);
    step([this] { link_->stop(); });
    answer_batch(sent_[0]);
    EXPECT_EQ(one->answers, answers{});
}

TEST_F(node_link_test, answer_to_a_question_of_an_older_connection_is_ignored) {
    const connection_number older = connection_;
    reconnect();
    node_facts facts = admitted_node(7);
    facts.run_id = facts.admitted_run_id = "older";
    step([&] { link_->node_answered({only, older, identified(facts)}); });
    EXPECT_FALSE(link_->is_voting());
    identify_as(admitted_node(8));
    EXPECT_TRUE(link_->is_voting());
    EXPECT_EQ(link_->run_id(), "run");
    EXPECT_EQ(link_->status().admitted_epoch, epoch{8});
}

TEST_F(node_link_test, news_of_an_older_connection_are_ignored) {
    const connection_number older = connection_;
    disconnect();
    pass(node_supervisor::reconnect_max);
    asked_.clear();
    step([&] { link_->connected({only, older}); });
    EXPECT_EQ(count_asked<node_request::identify>(), 0);
    vote();
    step([&] { link_->disconnected({only, older, "it was closed"}); });
    EXPECT_TRUE(link_->is_voting());
}

TEST_F(node_link_test, question_of_a_lost_connection_gets_no_answer) {
    bool answered = false;
    const auto ask = [&] {
        step([&] { link_->ask(node_request::ping{}, [&answered](const node_response::any&) { answered = true; }); });
    };
    ask();
    EXPECT_EQ(count_asked<node_request::ping>(), 1);
    disconnect();
    ask();
    EXPECT_EQ(count_asked<node_request::ping>(), 1) << "there is no connection";
    pass(node_supervisor::reconnect_max);
    vote();
    EXPECT_FALSE(answered);
}

TEST_F(node_link_test, answer_without_a_question_is_ignored) {
    answer_node(node_response::text{"OK", {}});
    EXPECT_TRUE(link_->is_voting());
}

TEST_F(node_link_test, connection_to_a_hanging_node_is_given_up) {
    const command one = send_now(command_kind::renew);
    pass(settings_.node_dead_after + core_context::tick_length(settings_));
    EXPECT_EQ(one->answers, (answers{reply_status::timeout, reply_status::broken}));
    EXPECT_EQ(closed_, 1);
    asked_.clear();
    connect();
    answer_batch(sent_[0]);
    EXPECT_TRUE(asked_.empty()) << "what arrives from it is ignored";
    EXPECT_EQ(one->answers.size(), 2U);
}

}  // namespace
}  // namespace lockcore
