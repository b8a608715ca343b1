#include <gateway/domain/principal_share.hpp>
#include <gateway/pg/executor/worker.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace fencegate::pg {
namespace {

using namespace std::chrono_literals;

const deadline far_deadline = deadline(1'000s);

class named_job final : public job {
  public:
    named_job(std::string principal, std::string job_name, deadline until)
        : job(until), name(std::move(job_name)), principal_(std::move(principal)) {}
    void run(session_slot&, std::span<const std::unique_ptr<job>>) noexcept override {}
    void refuse(failure) noexcept override {}
    const std::string& principal() const override { return principal_; }

    const std::string name;

  private:
    std::string principal_;
};

std::unique_ptr<job> make(const std::string& principal, const std::string& name, deadline until = far_deadline) {
    return std::make_unique<named_job>(principal, name, until);
}

std::string name_of(const std::unique_ptr<job>& work) {
    return static_cast<const named_job&>(*work).name;
}

std::string take_names(job_queue& queue) {
    std::string out;
    while (!queue.empty())
        out += name_of(queue.pop());
    return out;
}

TEST(job_queue, principals_take_turns_each_in_its_order) {
    job_queue queue;
    for (const char* name : {"1", "2", "3", "4"})
        queue.push(make("flood", name));
    queue.push(make("good", "a"));
    queue.push(make("good", "b"));
    queue.push(make("", "x"));
    EXPECT_EQ(queue.size(), 7U);
    EXPECT_EQ(take_names(queue), "1ax2b34");
}

TEST(job_queue, late_jobs_are_taken_and_turns_continue) {
    job_queue queue;
    queue.push(make("a", "1", deadline(10s)));
    queue.push(make("a", "2"));
    queue.push(make("b", "3", deadline(10s)));
    const auto late = queue.take_late(deadline(10s));
    EXPECT_EQ(late.size(), 2U);
    queue.push(make("b", "4"));
    EXPECT_EQ(queue.size(), 2U);
    EXPECT_EQ(take_names(queue), "24");
}

TEST(share_of, three_quarters_rounded_up) {
    EXPECT_EQ(share_of(100), 75U);
    EXPECT_EQ(share_of(10), 8U);
    EXPECT_EQ(share_of(1), 1U);
}

TEST(share_of_workers, one_of_several_is_left_to_others) {
    EXPECT_EQ(share_of_workers(1), 1U);
    EXPECT_EQ(share_of_workers(2), 1U);
    EXPECT_EQ(share_of_workers(3), 2U);
    EXPECT_EQ(share_of_workers(4), 3U);
    EXPECT_EQ(share_of_workers(8), 6U);
}

TEST(principal_uses, added_up_to_share_and_removed) {
    principal_uses uses;
    EXPECT_TRUE(uses.try_add("a", 2, 3));
    EXPECT_FALSE(uses.try_add("a", 2, 3));
    EXPECT_EQ(uses.used_by("a"), 2U) << "what does not fit is not added";
    EXPECT_FALSE(uses.try_add("b", 4, 3));
    EXPECT_EQ(uses.used_by("b"), 0U);
    uses.add("a", 5);
    uses.remove("a", 4);
    EXPECT_EQ(uses.used_by("a"), 3U);
    uses.remove("a", 3);
    EXPECT_EQ(uses.used_by("a"), 0U);
}

TEST(queued_jobs, principal_has_half_and_the_gateway_some_more) {
    queued_jobs queued(4);
    EXPECT_FALSE(queued.try_add("a"));
    EXPECT_FALSE(queued.try_add("a"));
    auto refused = queued.try_add("a");
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, errc::too_many_requests);
    EXPECT_TRUE(refused->retry_after);
    EXPECT_FALSE(queued.try_add("b"));
    EXPECT_FALSE(queued.try_add("b"));
    refused = queued.try_add("c");
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, errc::overloaded);
    EXPECT_FALSE(queued.try_add("")) << "the gateway's own work";
    EXPECT_EQ(queued.value(), 5U);
    queued.remove("a");
    queued.remove("");
    EXPECT_FALSE(queued.try_add("a"));
    EXPECT_EQ(queued.value(), 4U);
}

TEST(queued_jobs, jobs_of_the_gateway_take_no_place_of_principals) {
    queued_jobs queued(2);
    for (int i = 0; i < 10; ++i)
        EXPECT_FALSE(queued.try_add(""));
    EXPECT_FALSE(queued.try_add("a"));
    EXPECT_FALSE(queued.try_add("b"));
    EXPECT_TRUE(queued.try_add("c"));
}

TEST(queued_jobs, one_place_then_any_principal_may_have_it) {
    queued_jobs queued(1);
    EXPECT_FALSE(queued.try_add("a"));
    EXPECT_TRUE(queued.try_add("b"));
}

}  // namespace
}  // namespace fencegate::pg
