// What a node's admission waits for: the register,
// and the leases of the other nodes (docs/protocol.md R8, FAST READMISSION).
#include "link_to_one_node.hpp"

namespace lockcore {
namespace {

/// The only node has data that are not admitted.
class admission_test : public link_to_one_node {
  protected:
    admission_test() { facts_.admitted_run_id.clear(); }

    void answer_register(const action::ask_register& asked, register_response response) {
        step([&] { ctx_.register_answered({asked.request, std::move(response)}); });
    }
    template <class Request>
    const Request* last_asked_of_register() const {
        return std::get_if<Request>(&register_.back().asked);
    }
    /// Identifies the node, of which the register has this record.
    void identify(const node_record& record) {
        identify_as(facts_);
        ASSERT_TRUE(last_asked_of_register<register_request::find>());
        answer_register(register_.back(), record);
    }
    void draw(epoch drawn) {
        ASSERT_TRUE(last_asked_of_register<register_request::draw>());
        answer_register(register_.back(), drawn_epoch{drawn, false});
    }
    /// Returns the epoch with which the node is admitted; 0: it is not.
    epoch readmitted() const {
        const auto* request = std::get_if<node_request::readmit>(&asked_.back().request);
        return request ? request->drawn : epoch{};
    }
    void expect_admitted_with(epoch drawn) {
        ASSERT_EQ(readmitted(), drawn);
        answer_node(node_response::text{"OK", {}});
        facts_.admitted_run_id = facts_.run_id;
        facts_.admitted_epoch = drawn;
        identify_as(facts_);
        EXPECT_TRUE(link_->is_voting());
    }

    node_facts facts_ = admitted_node(0);
};

TEST_F(admission_test, epoch_drawn_for_an_earlier_life_admits_no_later_one) {
    connect();
    identify({});
    ASSERT_TRUE(last_asked_of_register<register_request::draw>());
    const action::ask_register earlier = register_.back();
    reconnect();
    facts_.run_id = "another run";
    identify_as(facts_);
    answer_register(earlier, drawn_epoch{epoch{8}, false});
    EXPECT_EQ(readmitted(), epoch{});
    ASSERT_TRUE(last_asked_of_register<register_request::find>());
    answer_register(register_.back(), node_record{});
    draw(epoch{9});
    expect_admitted_with(epoch{9});
}

TEST_F(admission_test, record_of_an_earlier_life_is_not_that_of_a_later_one) {
    connect();
    identify_as(facts_);
    const action::ask_register earlier = register_.back();
    reconnect();
    facts_.run_id = "another run";
    identify_as(facts_);
    const std::size_t asked = register_.size();
    answer_register(earlier, node_record{});
    EXPECT_EQ(register_.size(), asked) << "no epoch is drawn";
}

/// The node has forgotten leases. The pages of the others' leases have no end.
class endless_copying : public admission_test {
  protected:
    endless_copying() {
        const auto keep_question = [this](node_request::any, std::function<void(node_response::any)> then) {
            questions_.push_back(std::move(then));
        };
        others_.sources.assign(3, {"run", keep_question});
    }
    void mark() {
        const auto& request = std::get<node_request::mark>(asked_.back().request);
        answer_node(node_response::text{facts_.run_id + " 0 0 0 " + request.digits, {}});
    }
    /// Lets the time pass and the other nodes answer before each is given up.
    void copy_for(milliseconds time) {
        for (milliseconds passed{0}; passed < time; passed += settings_.node_dead_after / 4) {
            for (const auto& then : std::exchange(questions_, {}))
                step([&] { then(node_response::lease_page{"1", "1", {}, {}}); });
            pass(settings_.node_dead_after / 4);
        }
    }

    std::vector<std::function<void(node_response::any)>> questions_;
};

TEST_F(endless_copying, ends_with_the_quarantine) {
    connect();
    identify({true, epoch{6}, "an earlier life", false});
    mark();
    copy_for(settings_.max_ttl - 1s);
    EXPECT_EQ(questions_.size(), 3U) << "the leases are still read";
    EXPECT_EQ(link_->status().state, node_state::quarantined);
    copy_for(1s);
    identify_as(facts_);
    draw(epoch{9});
    EXPECT_EQ(std::get<node_request::readmit>(asked_.back().request).mark, "") << "it has no copies";
    expect_admitted_with(epoch{9});
}

}  // namespace
}  // namespace lockcore
