#include <gateway/pg/write_batcher.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

using namespace fencegate;
using namespace fencegate::pg;

namespace {

class test_write final : public write_job {
  public:
    using write_job::write_job;
    void run(session_slot&) noexcept override {}
    void answer(result<write_outcome>) noexcept override {}
};

using jobs = std::vector<std::unique_ptr<write_job>>;

std::unique_ptr<write_job> write(std::string id, const std::vector<std::string>& names, std::size_t operations = 1) {
    write_request request;
    request.write_id = std::move(id);
    for (const auto& name : names)
        request.resources.push_back(lockcore::resource_name::parse(name).value());
    request.operations.resize(operations);
    return std::make_unique<test_write>(deadline::max(), std::move(request));
}

std::string ids(const jobs& batch) {
    std::string out;
    for (const auto& one : batch)
        out += one->request().write_id;
    return out;
}

}  // namespace

TEST(next_batch, takes_all_when_each_has_one_resource) {
    jobs waiting;
    waiting.push_back(write("1", {"a"}));
    waiting.push_back(write("2", {"a"}));
    waiting.push_back(write("3", {"b"}));
    EXPECT_EQ(ids(next_batch(waiting)), "123");
    EXPECT_TRUE(waiting.empty());
}

TEST(next_batch, leaves_a_write_whose_resources_lie_below_one_that_is_in) {
    jobs waiting;
    waiting.push_back(write("1", {"a", "m"}));
    waiting.push_back(write("2", {"b"}));
    waiting.push_back(write("3", {"b", "z"}));
    waiting.push_back(write("4", {"m"}));
    waiting.push_back(write("5", {"n"}));
    EXPECT_EQ(ids(next_batch(waiting)), "145");
    EXPECT_EQ(ids(next_batch(waiting)), "23");
    EXPECT_TRUE(waiting.empty());
}

TEST(next_batch, keeps_writes_on_one_resource_in_order_of_arrival) {
    jobs waiting;
    waiting.push_back(write("1", {"a", "c"}));
    waiting.push_back(write("2", {"b"}));
    waiting.push_back(write("3", {"b"}));
    waiting.push_back(write("4", {"b"}));
    EXPECT_EQ(ids(next_batch(waiting)), "1");
    EXPECT_EQ(ids(next_batch(waiting)), "234");
}

TEST(next_batch, ends_at_the_limit_of_operations_but_takes_one_write_however_large) {
    jobs waiting;
    waiting.push_back(write("1", {"a"}, shared_operations_max + 1));
    waiting.push_back(write("2", {"b"}, shared_operations_max - 1));
    waiting.push_back(write("3", {"b"}, 2));
    waiting.push_back(write("4", {"b"}, 1));
    EXPECT_EQ(ids(next_batch(waiting)), "1");
    EXPECT_EQ(ids(next_batch(waiting)), "2");
    EXPECT_EQ(ids(next_batch(waiting)), "34");
}

TEST(side_lanes, hold_a_resource_until_the_last_write_on_it_is_gone) {
    postgres_config cfg;
    cfg.connections = 2;
    std::atomic<std::size_t> queued{0};
    side_lanes lanes(cfg, queued);
    const auto of = [](const char* name) { return std::vector{lockcore::resource_name::parse(name).value()}; };
    EXPECT_FALSE(lanes.holds(of("a")));
    lanes.take(write("1", {"a", "b"}));
    lanes.take(write("2", {"c"}));
    lanes.take(write("3", {"b"}));
    EXPECT_TRUE(lanes.holds(of("a")) && lanes.holds(of("b")) && lanes.holds(of("c")));
    EXPECT_EQ(lanes.workers()[0]->load(), 2U) << "writes on one resource share a queue";
    EXPECT_EQ(lanes.workers()[1]->load(), 1U);
    for (const auto& lane : lanes.workers())
        lane->abandon();
    EXPECT_FALSE(lanes.holds(of("a")) || lanes.holds(of("b")) || lanes.holds(of("c")));
}
