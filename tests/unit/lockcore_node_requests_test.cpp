// What a node answers to the requests of its supervisor.
#include <proto/foreign_times.hpp>
#include <redis/node_requests.hpp>

#include <gtest/gtest.h>

#include <variant>
#include <vector>

namespace lockcore::redis {
namespace {

reply text(std::string value) {
    return {reply::kind::text, std::move(value), 0, {}};
}

reply number(std::int64_t value) {
    return {reply::kind::number, {}, value, {}};
}

TEST(node_requests, page_limits_the_times_that_a_node_reports) {
    const reply page{
        reply::kind::array,
        {},
        0,
        {text("1"), text("0"), text("a"), number(INT64_MAX), text("v"), text("b"), number(INT64_MIN), text("v")}};
    const auto response = parse_response(node_request::read_leases{}, {}, std::vector<reply>{page});
    const auto& leases = std::get<node_response::lease_page>(response).leases;
    ASSERT_EQ(leases.size(), 2U);
    EXPECT_EQ(leases[0].remaining, foreign_time_max);
    EXPECT_EQ(leases[1].remaining, milliseconds{-1});
}

}  // namespace
}  // namespace lockcore::redis
