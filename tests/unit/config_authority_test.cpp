// gateway/config: hosts and ports of requests and http.allowed_hosts; the division of open files;
// values that can not be kept.
#include <gateway/config/authority.hpp>
#include <gateway/config/file_limit.hpp>
#include <gateway/config/reader.hpp>

#include <gtest/gtest.h>

namespace fencegate {
namespace {

TEST(config_authority, host_and_port_then_canonical) {
    const std::pair<const char*, authority> table[] = {
        {"localhost", {"localhost", std::nullopt}}, {"Shop.Example.:8080", {"shop.example", 8080}},
        {"a_b-c.d:", {"a_b-c.d", std::nullopt}},    {"127.0.0.1:0", {"127.0.0.1", 0}},
        {"[::1]", {"::1", std::nullopt}},           {"[0:0::0:1]:65535", {"::1", 65'535}},
        {"[::FFFF:10.0.0.1]:1", {"10.0.0.1", 1}},
    };
    for (const auto& [text, expected] : table)
        EXPECT_EQ(parse_authority(text), expected) << text;
}

TEST(config_authority, no_host_then_empty) {
    for (const char* text : {"a..",   "",         ":80",  ".",      "a b",     "a:b",           "a:65536",   "a:-1",
                             "a:1:2", "::1",      "[::1", "[::1]x", "[::1]:x", "[localhost]",   "[1.2.3.4]", "user@a",
                             "a/b",   "http://a", "a,b",  "%61",    "a\tb",    "[fe80::1%eth0]"})
        EXPECT_FALSE(parse_authority(text)) << text;
    EXPECT_FALSE(parse_authority(std::string(256, 'a')));
    for (const auto text : {std::string_view("[::ffff:127.0.0.1\0 ]", 21), std::string_view("[7.0.0.1\0::1]", 14),
                            std::string_view("a\0b", 3)})
        EXPECT_FALSE(parse_authority(text)) << text;
}

TEST(config_authority, address_of_connection_then_shortest_without_zone) {
    const std::pair<const char*, const char*> table[] = {
        {"fe80::1%eth0", "fe80::1"},
        {"fe80:0::2%7", "fe80::2"},
        {"::ffff:10.0.0.1", "10.0.0.1"},
        {"10.0.0.1", "10.0.0.1"},
        {"%eth0", ""},
        {"shop.example", ""},
    };
    for (const auto& [text, expected] : table)
        EXPECT_EQ(canonical_address(text), expected) << text;
}

TEST(config_authority, url_host_of_ipv6_then_brackets) {
    EXPECT_EQ(format_url_host("127.0.0.1"), "127.0.0.1");
    EXPECT_EQ(format_url_host("shop.example"), "shop.example");
    EXPECT_EQ(format_url_host("::1"), "[::1]");
}

TEST(config_authority, loopback_then_known_by_name_and_address) {
    for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.255.0.9", "::1"})
        EXPECT_TRUE(is_loopback_host(host)) << host;
    for (const char* host : {"", "notlocalhost", "localhost.a", "128.0.0.1", "::2", "127.1", "127.0.0.1.a"})
        EXPECT_FALSE(is_loopback_host(host)) << host;
}

TEST(config_reader, nul_character_is_refused) {
    std::string target;
    config_reader::fault_list faults;
    config_reader::text(target)(YAML::Load("\"127.0.0.1\\0.example\""), "http.address", faults);
    EXPECT_EQ(faults.all(), std::vector<std::string>{"http.address: has a NUL character"});
    EXPECT_EQ(target, "");
}

TEST(config_file_limit, files_divided_then_reserve_comes_first) {
    config cfg;
    cfg.protocol.nodes.resize(5);
    const file_limit plenty = divide_files(100'000, cfg);
    EXPECT_EQ(plenty.connections, cfg.http.connections_max);
    EXPECT_GT(plenty.reserved, 60U);
    const file_limit scarce = divide_files(1'000, cfg);
    EXPECT_EQ(scarce.connections, 1'000 - scarce.reserved);
    EXPECT_NE(scarce.describe(cfg).find("of which " + std::to_string(scarce.connections) + " fit"), std::string::npos);
    EXPECT_EQ(divide_files(scarce.reserved + 15, cfg).connections, 0U);
    cfg.http.connections_max = 3;
    EXPECT_EQ(divide_files(scarce.reserved + 3, cfg).connections, 3U);
    cfg.http.threads = 8;
    cfg.postgres.connections = 64;
    EXPECT_GT(divide_files(1'000, cfg).reserved, scarce.reserved + 4 * 60 + 7 * 15);
}

}  // namespace
}  // namespace fencegate
