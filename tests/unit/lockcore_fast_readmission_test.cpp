// The requests of FAST READMISSION and their order: docs/protocol.md. The nodes are those of the test.
#include <proto/fast_readmission.hpp>

#include <gtest/gtest.h>

#include <deque>

#include <tests/support/no_secrets.hpp>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

const std::string others_digits = " 0 0 0 ffffffffffffffffffffffffffffffff";
const std::string lease_text =
    std::string(32, 'a') + " 7 0 10000 0 5 -\norders\nworker\n\n" + std::string(16, 'a') + "\n\n";

class fast_readmission_test : public testing::Test {
  protected:
    /// A request that a node has got and not answered yet.
    struct unanswered {
        node_request::any request;
        std::function<void(node_response::any)> then;
    };
    using node = std::deque<unanswered>;

    fast_readmission_test() {
        config_.nodes.resize(3);
        config_.answer_bound = 500ms;
        config_.node_dead_after = 3s;
        begin({});
    }

    void begin(std::string own_mark) {
        copying_ = std::make_shared<fast_readmission>(
            ctx_, "run-x", ask_of(forgot_),
            std::vector<fast_readmission::source>{{"run-1", ask_of(first_)}, {"run-2", ask_of(second_)}}, epoch{9},
            std::move(own_mark), [this](result<std::string> outcome) { outcome_ = std::move(outcome); });
        copying_->start();
    }

    static fast_readmission::ask_function ask_of(node& asked) {
        return [&asked](node_request::any request, std::function<void(node_response::any)> then) {
            asked.push_back({std::move(request), std::move(then)});
        };
    }
    void pass(milliseconds time) {
        ctx_.now.monotonic += time;
        ctx_.timers.run_due(ctx_.now.monotonic);
    }
    /// Returns the oldest request to the node, which must be of this kind.
    template <class Request>
    static Request request_to(node& asked) {
        if (asked.empty() || !std::holds_alternative<Request>(asked.front().request)) {
            ADD_FAILURE() << "no such request";
            return {};
        }
        return std::get<Request>(asked.front().request);
    }
    static void answer(node& asked, node_response::any response) {
        ASSERT_FALSE(asked.empty());
        const auto then = std::move(asked.front().then);
        asked.pop_front();
        then(std::move(response));
    }
    static void answer(node& asked, std::string value) { answer(asked, node_response::text{std::move(value), {}}); }
    static node_response::lease_page page(std::vector<std::string> names, std::string cursor = "0") {
        node_response::lease_page out{"4294967296", std::move(cursor), {}, {}};
        for (std::string& name : names)
            out.leases.push_back({std::move(name), 5s, lease_text});
        return out;
    }
    /// Answers MARK with a mark of this gateway, and lets the wait pass.
    void mark() {
        mark_ = "run-x 0 0 0 " + request_to<node_request::mark>(forgot_).digits;
        answer(forgot_, mark_);
        pass(507ms);
    }
    bool node_has_changed() const { return outcome_ && !*outcome_ && outcome_->error().detail.empty(); }
    std::string reason() const { return outcome_ && !*outcome_ ? outcome_->error().detail : "has not failed"; }

    config config_;
    no_secrets secrets_;
    core_context ctx_{config_, secrets_, secrets_};
    node forgot_, first_, second_;
    std::optional<result<std::string>> outcome_;
    std::shared_ptr<fast_readmission> copying_;
    std::string mark_;
};

TEST_F(fast_readmission_test, reads_after_the_bound_of_answers) {
    pass(2s);
    EXPECT_EQ(request_to<node_request::mark>(forgot_).digits.size(), 32U);
    answer(forgot_, "run-x 0 0 0 " + request_to<node_request::mark>(forgot_).digits);
    pass(506ms);
    EXPECT_TRUE(first_.empty() && second_.empty()) << "1.01 D + 2 ms from the answer to MARK are not over";
    pass(1ms);
    for (node* source : {&first_, &second_}) {
        const auto read = request_to<node_request::read_leases>(*source);
        EXPECT_EQ(read.run_id, source == &first_ ? "run-1" : "run-2");
        EXPECT_EQ(read.base, "");
        EXPECT_EQ(read.cursor, "0");
        EXPECT_EQ(read.page_size, fast_readmission::page_size);
    }
}

TEST_F(fast_readmission_test, reads_all_pages_of_all_nodes_before_it_installs) {
    mark();
    answer(first_, page({"a"}, "17"));
    const auto next = request_to<node_request::read_leases>(first_);
    EXPECT_EQ(next.cursor, "17");
    EXPECT_EQ(next.base, "4294967296") << "the base of the first page";
    answer(first_, page({"b"}));
    EXPECT_TRUE(forgot_.empty()) << "the other node is not read yet";
    answer(second_, page({"a", "c"}));
    const auto install = request_to<node_request::install>(forgot_);
    EXPECT_EQ(install.run_id, "run-x");
    EXPECT_EQ(install.mark, mark_);
    EXPECT_EQ(install.leases.size(), 3U) << "each key once";
    EXPECT_FALSE(outcome_) << "it is not acknowledged yet";
    answer(forgot_, "OK");
    ASSERT_TRUE(outcome_ && *outcome_);
    EXPECT_EQ(**outcome_, mark_);
}

TEST_F(fast_readmission_test, installs_in_pages) {
    mark();
    std::vector<std::string> names;
    constexpr std::size_t pages = fast_readmission::installs_max + 1;
    for (std::size_t n = 0; n < pages * fast_readmission::page_size + 1; ++n)
        names.push_back(std::to_string(n));
    answer(first_, page(names));
    answer(second_, page({}));
    std::vector<std::size_t> sizes, in_flight;
    for (; !outcome_ && sizes.size() < 20; answer(forgot_, "OK")) {
        in_flight.push_back(forgot_.size());
        sizes.push_back(request_to<node_request::install>(forgot_).leases.size());
    }
    EXPECT_EQ(in_flight, (std::vector<std::size_t>{8, 8, 8, 7, 6, 5, 4, 3, 2, 1}));
    EXPECT_EQ(sizes, (std::vector<std::size_t>{100, 100, 100, 100, 100, 100, 100, 100, 100, 1}));
    ASSERT_TRUE(outcome_);
    EXPECT_TRUE(*outcome_) << "all are acknowledged";
}

TEST_F(fast_readmission_test, nothing_to_install_finishes_after_the_reads) {
    mark();
    answer(first_, page({}));
    EXPECT_FALSE(outcome_);
    answer(second_, page({}));
    ASSERT_TRUE(outcome_ && *outcome_);
    EXPECT_TRUE(forgot_.empty());
}

TEST_F(fast_readmission_test, mark_of_another_gateway_waits_for_that_gateway) {
    answer(forgot_, "run-x" + others_digits);
    pass(507ms);
    for (milliseconds waited{0}; waited < fast_readmission::other_gateway_timeout;
         waited += fast_readmission::recheck_interval) {
        EXPECT_TRUE(first_.empty());
        request_to<node_request::mark>(forgot_);
        answer(forgot_, "run-x" + others_digits);
        pass(fast_readmission::recheck_interval);
    }
    EXPECT_EQ(first_.size(), 1U) << "that gateway may have ended";
    EXPECT_EQ(second_.size(), 1U);
}

TEST_F(fast_readmission_test, admission_by_another_gateway_is_noticed_soon) {
    answer(forgot_, "run-x" + others_digits);
    pass(507ms);
    answer(forgot_, "run-x" + others_digits);
    pass(fast_readmission::recheck_interval);
    answer(forgot_, "ALREADY");
    EXPECT_TRUE(node_has_changed());
}

TEST_F(fast_readmission_test, own_mark_of_an_earlier_try_waits_for_nobody) {
    mark();
    answer(first_, node_response::lease_page{{}, {}, {}, "UNINIT node not admitted"});
    EXPECT_NE(reason(), "");
    first_.clear();
    second_.clear();
    begin(copying_->own_mark());
    answer(forgot_, mark_);
    pass(507ms);
    EXPECT_EQ(first_.size(), 1U) << "after the bound of answers";
}

TEST_F(fast_readmission_test, mark_that_changes_during_the_wait_ends_it) {
    answer(forgot_, "run-x" + others_digits);
    pass(507ms);
    const std::string changed = "run-x 1 0 0 " + request_to<node_request::mark>(forgot_).digits;
    answer(forgot_, changed);
    EXPECT_TRUE(node_has_changed());
    EXPECT_EQ(copying_->own_mark(), changed) << "this gateway set it, so the next try waits for nobody else";
}

TEST_F(fast_readmission_test, restarted_node_is_not_marked) {
    answer(forgot_, "run-y 0 0 0 " + request_to<node_request::mark>(forgot_).digits);
    EXPECT_TRUE(node_has_changed());
    pass(1h);
    EXPECT_TRUE(first_.empty());
}

TEST_F(fast_readmission_test, source_that_lost_its_vote_ends_it) {
    mark();
    answer(first_, page({"a"}, "17"));
    answer(first_, node_response::lease_page{{}, {}, {}, "UNINIT node not admitted"});
    EXPECT_NE(reason().find("UNINIT"), std::string::npos);
    answer(second_, page({"a"}));
    EXPECT_TRUE(forgot_.empty()) << "nothing is installed";
}

TEST_F(fast_readmission_test, install_that_is_refused_ends_it) {
    mark();
    answer(first_, page({"a"}));
    answer(second_, page({"a"}));
    answer(forgot_, "GONE");
    EXPECT_TRUE(node_has_changed());
}

TEST_F(fast_readmission_test, refusal_of_a_node_is_the_reason) {
    answer(forgot_, node_response::text{{}, "MARK was refused"});
    EXPECT_EQ(reason(), "MARK was refused");
    outcome_.reset();
    begin({});
    answer(forgot_, "run-x" + others_digits);
    pass(507ms);
    answer(forgot_, node_response::text{{}, "MARK was refused again"});
    EXPECT_EQ(reason(), "MARK was refused again");
    outcome_.reset();
    begin({});
    mark();
    answer(first_, page({"a"}));
    answer(second_, page({}));
    answer(forgot_, node_response::text{{}, "INSTALL was refused"});
    EXPECT_EQ(reason(), "INSTALL was refused");
}

TEST_F(fast_readmission_test, more_leases_than_the_limit_end_it) {
    mark();
    node_response::lease_page large = page({"a"}, "17");
    large.leases.front().value.assign(lease_merge::bytes_max, 'x');
    answer(first_, large);
    EXPECT_NE(reason().find("more leases"), std::string::npos);
}

TEST_F(fast_readmission_test, node_that_does_not_answer_ends_it) {
    const auto restart = [this] {
        for (node* each : {&forgot_, &first_, &second_})
            each->clear();
        outcome_.reset();
        begin({});
    };
    pass(3s);
    EXPECT_EQ(reason(), "a node did not answer in time") << "MARK";
    restart();
    mark();
    answer(first_, page({}));
    pass(3s);
    EXPECT_EQ(reason(), "a node did not answer in time") << "READ";
    restart();
    mark();
    answer(first_, page({"a"}));
    answer(second_, page({}));
    pass(3s);
    EXPECT_EQ(reason(), "a node did not answer in time") << "INSTALL";
    answer(forgot_, "OK");
    EXPECT_FALSE(*outcome_) << "an answer after that changes nothing";
}

TEST_F(fast_readmission_test, dropped_while_a_node_works_reports_nothing) {
    mark();
    copying_.reset();
    answer(first_, page({"a"}));
    pass(1h);
    EXPECT_FALSE(outcome_);
}

}  // namespace
}  // namespace lockcore
