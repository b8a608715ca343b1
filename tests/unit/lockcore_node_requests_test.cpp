// What a node answers to the requests of its supervisor.
#include <proto/lease_record.hpp>
#include <redis/node_requests.hpp>

#include <gtest/gtest.h>

#include <string>
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
    const auto response = parse_response(node_request::read_leases{}, std::vector<reply>{page});
    const auto& leases = std::get<node_response::lease_page>(response).leases;
    ASSERT_EQ(leases.size(), 2U);
    EXPECT_EQ(leases[0].remaining, foreign_time_max);
    EXPECT_EQ(leases[1].remaining, milliseconds{-1});
}

reply list(std::vector<reply> elements) {
    return {reply::kind::array, {}, 0, std::move(elements)};
}

TEST(node_requests, node_syncs_only_if_its_user_default_may_write) {
    const std::string info =
        "redis_version:7.0.15\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\n"
        "aof_last_bgrewrite_status:ok\r\naof_last_write_status:ok\r\n";
    const auto syncs = [&](reply replay) {
        const std::vector<reply> replies{list({}),
                                         list({}),
                                         list({}),
                                         list({}),
                                         text(info),
                                         list({text("appendonly"), text("yes")}),
                                         list({text("appendfsync"), text("always")}),
                                         list({text("no-appendfsync-on-rewrite"), text("no")}),
                                         std::move(replay)};
        const auto response = parse_response(node_request::identify{}, replies);
        return std::get<node_response::identified>(response).facts.syncs_every_write;
    };
    EXPECT_TRUE(syncs(text("OK")));
    EXPECT_FALSE(syncs(text("User default has no permissions to run the 'set' command")));
    EXPECT_FALSE(
        syncs({reply::kind::error, "NOPERM this user has no permissions to run the 'acl|dryrun' command", 0, {}}));
}

TEST(node_requests, identification_gets_errors_of_a_node_that_wants_credentials) {
    // Redis closes a connection without credentials that sends more words than that, or a longer one.
    constexpr std::size_t words_max = 10, word_bytes_max = 16'384;
    for (const std::string& command : format_request(node_request::identify{})) {
        ASSERT_EQ(command.front(), '*');
        EXPECT_LE(std::stoul(command.substr(1)), words_max) << command;
        EXPECT_LE(command.size(), word_bytes_max) << command.substr(0, 100);
    }
}

TEST(node_requests, identification_finds_the_scripts_that_are_missing) {
    std::vector<reply> replies(format_request(node_request::identify{}).size(), list({}));
    const auto missing = [&] {
        return std::get<node_response::identified>(parse_response(node_request::identify{}, replies)).missing_scripts;
    };
    EXPECT_TRUE(missing().empty()) << "SCRIPT EXISTS was refused";
    replies[0] = list({number(1), number(1), number(0), number(0), number(1), number(0), number(1), number(1)});
    replies[1] = list({number(1), number(1), number(0), number(1)});
    replies[2] = list({number(1), number(1), number(1), number(1), number(1), number(0)});
    EXPECT_EQ(missing(),
              (std::vector{command_kind::hold, command_kind::top_up, command_kind::acquire, command_kind::undo}))
        << "also if only those for shared leases are";
}

TEST(node_requests, lease_end_names_lease_and_resource) {
    const std::string ended = "0123456789abcdef0123456789abcdef";
    const auto message = [](std::string body) {
        return list({text("message"), text("fg:wake:0"), text(std::move(body))});
    };
    const reply whole = message(ended + " inventory/sku-1");
    const auto end = parse_lease_end(whole);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->ended.str(), ended);
    EXPECT_EQ(end->resource, "inventory/sku-1");
    EXPECT_FALSE(end->revoked);
    const reply of_revoked = message(ended + " inventory/sku-1 revoked");
    const auto revoked = parse_lease_end(of_revoked);
    ASSERT_TRUE(revoked);
    EXPECT_EQ(revoked->resource, "inventory/sku-1");
    EXPECT_TRUE(revoked->revoked);
    for (const std::string& body : {std::string(), ended, ended + " ", "x" + ended + " a"})
        EXPECT_FALSE(parse_lease_end(message(body))) << body;
    EXPECT_FALSE(parse_lease_end(list({text("subscribe"), text("fg:wake:0"), number(1)})));
    EXPECT_FALSE(parse_lease_end(text(ended + " a")));
}

}  // namespace
}  // namespace lockcore::redis
