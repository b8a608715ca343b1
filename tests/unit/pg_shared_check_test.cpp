// gateway/pg/executor/shared_check: one check for many callers.
#include <gateway/pg/executor/job.hpp>

#include <gtest/gtest.h>

#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/require.hpp>

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace fencegate::pg {
namespace {

using namespace std::chrono_literals;

/// A caller that keeps its answer.
class waiting_test final : public caller_awaiting<void> {
  public:
    void answer(result<void> value) noexcept override { answers.push_back(std::move(value)); }
    void give_up(bool unchanged) noexcept override { answer(unresponsive_failure(unchanged)); }
    boost::asio::any_io_executor executor() const override { return own_executor; }
    std::vector<result<void>> answers;
    boost::asio::any_io_executor own_executor;
};

class shared_checks : public testing::Test {
  protected:
    std::shared_ptr<waiting_test> ask(shared_check& check) {
        auto caller = std::make_shared<waiting_test>();
        check.ask(caller, [this](shared_check::caller_ptr callers) { begun_.push_back(std::move(callers)); });
        return caller;
    }

    std::vector<shared_check::caller_ptr> begun_;
};

TEST_F(shared_checks, callers_while_under_way_then_one_check) {
    shared_check check(1h);
    const auto first = ask(check), second = ask(check);
    ASSERT_EQ(begun_.size(), 1U);
    EXPECT_TRUE(first->answers.empty() && second->answers.empty());
    begun_[0]->answer({});
    EXPECT_EQ(first->answers.size(), 1U);
    EXPECT_EQ(second->answers.size(), 1U);
    EXPECT_TRUE(first->answers[0] && second->answers[0]);
}

TEST_F(shared_checks, caller_soon_after_then_same_result) {
    shared_check check(1h);
    ask(check);
    begun_[0]->answer(make_failure(errc::storage_unavailable, "away"));
    begun_[0]->answer({});  // the first answer counts
    const auto later = ask(check);
    EXPECT_EQ(begun_.size(), 1U);
    ASSERT_EQ(later->answers.size(), 1U);
    ASSERT_FALSE(later->answers[0]);
    EXPECT_EQ(later->answers[0].error().detail, "away");
}

TEST_F(shared_checks, caller_after_result_is_old_then_another_check) {
    shared_check check(-1ms);
    const auto first = ask(check);
    begun_[0]->answer({});
    const auto second = ask(check);
    ASSERT_EQ(begun_.size(), 2U);
    EXPECT_TRUE(second->answers.empty());
    begun_[0]->give_up(true);  // an earlier check says nothing to later callers
    EXPECT_TRUE(second->answers.empty());
    begun_[1]->give_up(false);
    EXPECT_EQ(first->answers.size(), 1U);
    ASSERT_EQ(second->answers.size(), 1U);
    EXPECT_EQ(second->answers[0].error().code, errc::storage_unavailable);
}

TEST_F(shared_checks, begin_answers_at_once_then_caller_is_answered) {
    shared_check check(1h);
    const auto caller = std::make_shared<waiting_test>();
    check.ask(caller, [](const shared_check::caller_ptr& callers) { callers->answer({}); });
    EXPECT_EQ(caller->answers.size(), 1U);
}

TEST_F(shared_checks, begin_fails_then_callers_are_answered) {
    shared_check check(1h);
    const auto caller = std::make_shared<waiting_test>();
    check.ask(caller, [](const shared_check::caller_ptr&) { throw std::bad_alloc(); });
    ASSERT_EQ(caller->answers.size(), 1U);
    EXPECT_EQ(caller->answers[0].error().code, errc::storage_unavailable);
}

// The result outlives the gateway's io_contexts.
TEST_F(shared_checks, ended_check_keeps_nothing_of_the_callers_executor) {
    shared_check check(1h);
    boost::asio::io_context io;
    auto caller = std::make_shared<waiting_test>();
    caller->own_executor = boost::asio::require(io.get_executor(), boost::asio::execution::outstanding_work.tracked);
    check.ask(std::exchange(caller, nullptr), [](const shared_check::caller_ptr& callers) { callers->answer({}); });
    io.run_for(1s);
    EXPECT_TRUE(io.stopped()) << "work is outstanding";
}

}  // namespace
}  // namespace fencegate::pg
