#include <gateway/cli/duration.hpp>
#include <gateway/cli/event_reader.hpp>
#include <gateway/cli/gateway_address.hpp>
#include <gateway/cli/output.hpp>

#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

TEST(cli_duration, takes_a_number_and_a_unit) {
    EXPECT_EQ(parse_duration("500ms"), milliseconds(500));
    EXPECT_EQ(parse_duration("10s"), milliseconds(10'000));
    EXPECT_EQ(parse_duration("2m"), milliseconds(120'000));
    EXPECT_EQ(parse_duration("1h"), milliseconds(3'600'000));
    EXPECT_EQ(parse_duration("2d"), milliseconds(172'800'000));
    EXPECT_EQ(parse_duration("41d"), milliseconds(3'542'400'000));
    EXPECT_EQ(parse_duration("0s"), milliseconds(0));
    EXPECT_EQ(parse_duration("0"), milliseconds(0));
    EXPECT_EQ(parse_duration("1000h"), milliseconds(3'600'000'000));
}

TEST(cli_duration, takes_nothing_else) {
    for (const char* text : {"", "10", "00", "s", "10 s", " 10s", "10s ", "-1s", "+1s", "1.5s", "10S", "1D", "1w",
                             "10sec", "1001h", "4294967296ms", "0x1s"})
        EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(cli_duration, is_shown_in_the_unit_that_fits) {
    EXPECT_EQ(format_duration(milliseconds(400)), "0.4s");
    EXPECT_EQ(format_duration(milliseconds(12'500)), "12.5s");
    EXPECT_EQ(format_duration(milliseconds(200'000)), "3m20s");
    EXPECT_EQ(format_duration(milliseconds(7'500'000)), "2h05m");
}

TEST(cli_gateway_address, takes_a_host_a_port_and_a_base) {
    const auto plain = parse_address("http://127.0.0.1:8080");
    EXPECT_EQ(plain.host + " " + plain.base + " " + plain.authority, "127.0.0.1  127.0.0.1:8080");
    const auto proxied = parse_address("http://gateway.test/fence/");
    EXPECT_EQ(proxied.host + " " + proxied.base + " " + proxied.authority, "gateway.test /fence gateway.test");
    const auto secured = parse_address("https://gateway.test");
    EXPECT_EQ(secured.host + " " + secured.origin(), "gateway.test https://gateway.test");
    EXPECT_TRUE(secured.tls && !plain.tls);
    const auto v6 = parse_address("http://[::1]:8080/");
    EXPECT_EQ(v6.host + " " + v6.base + " " + v6.authority, "::1  [::1]:8080");
    EXPECT_TRUE(plain.is_loopback() && v6.is_loopback() && parse_address("https://localhost").is_loopback());
    EXPECT_FALSE(proxied.is_loopback() || parse_address("http://128.0.0.1").is_loopback());
}

TEST(cli_gateway_address, says_what_is_wrong) {
    for (const char* text : {"", "localhost", "localhost:8080", "ftp://localhost", "http://",
                             "http://user:secret@localhost", "http://localhost/?a=b", "http://localhost/#a"})
        EXPECT_THROW(parse_address(text), std::invalid_argument) << text;
}

TEST(cli_gateway_address, encodes_all_but_the_unreserved) {
    EXPECT_EQ(target_of("/v1/history", {{"from", "2026-11-21T10:00:00+01:00"}, {"owner", ""}, {"to", "a b&c"}}),
              "/v1/history?from=2026-11-21T10%3A00%3A00%2B01%3A00&to=a%20b%26c");
    EXPECT_EQ(target_of("/v1/leases", {{"cursor", ""}}), "/v1/leases");
}

std::string all_events(event_reader& reader) {
    std::string out;
    while (const auto event = reader.next())
        out += event->name + "=" + event->data + ";";
    return out;
}

TEST(cli_event_reader, puts_together_what_was_cut_anywhere) {
    const std::string stream =
        ": hello\nevent: granted\ndata: {\"a\":1}\n\nevent:lost\r\ndata:one\r\ndata: two\r\n\r\nid: 7\n\n";
    for (std::size_t size = 1; size <= stream.size(); ++size) {
        event_reader reader;
        std::string seen;
        for (std::size_t at = 0; at < stream.size(); at += size) {
            reader.add(std::string_view(stream).substr(at, size));
            seen += all_events(reader);
        }
        EXPECT_EQ(seen, "granted={\"a\":1};lost=one\ntwo;") << size;
        EXPECT_EQ(reader.last_id(), "7") << size;
    }
}

TEST(cli_event_reader, tells_an_id_when_its_event_is_whole) {
    event_reader reader;
    reader.add("id: 3\n\nid: 4\ndata: x\n");
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.last_id(), "3");
    reader.add("\n");
    EXPECT_TRUE(reader.next());
    EXPECT_EQ(reader.last_id(), "4");
}

TEST(cli_event_reader, refuses_what_does_not_end) {
    event_reader reader;
    const std::string piece(event_reader::pending_max, 'a');
    reader.add(piece);
    EXPECT_THROW(reader.add("a"), std::length_error);
}

TEST(cli_table, is_as_wide_as_its_widest_cells) {
    std::ostringstream out;
    table shown({{"name"}, {"n", true}, {"last"}}, out, {.table = true});
    shown.print({{cell("a"), cell("100"), cell("x")}, {cell("grün-2"), cell("7"), cell("y")}});
    EXPECT_EQ(out.str(),
              "name      n  last\n"
              "a       100  x\n"
              "grün-2    7  y\n");
}

TEST(cli_table, cuts_the_longest_elastic_text_where_the_terminal_ends) {
    std::ostringstream out;
    table shown({{"id"}, {"a", false, true}, {"b", false, true}}, out, {.table = true, .width = 34});
    shown.print({{cell("1"), cell("0123456789abcdefghijklmnop"), cell("short")},
                 {cell("2"), cell("日本語の所有者さん、とても長い名前"), cell("wide")},
                 {cell("3"), cell("e\u0301tude"), cell("y")}});
    EXPECT_EQ(out.str(),
              "id  a                        b\n"
              "1   0123456789abcdefghijkl…  short\n"
              "2   日本語の所有者さん、と…  wide\n"
              "3   e\u0301tude                    y\n");
}

TEST(cli_table, cuts_no_more_than_elastic_min) {
    std::ostringstream out;
    table shown({{"id"}, {"a", false, true}}, out, {.table = true, .width = 5});
    shown.print({{cell("123456"), cell("0123456789abcdefghijklmnop")}});
    EXPECT_EQ(out.str(), "id      a\n123456  0123456789a…\n");
}

TEST(cli_table, never_lets_a_text_steer_the_terminal) {
    EXPECT_EQ(cell("a\033[31mb\n\x7f").text, "a?[31mb??");
    EXPECT_EQ(cell("a\xC2\x9B"
                   "31mb ü")
                  .text,
              "a?31mb ü");
    EXPECT_EQ(cell("a\u202Eb\u2067c\u200Fd\xff").text, "a?b?c?d?");
    EXPECT_EQ(painted("up", colour::green, true), "\033[32mup\033[0m");
    EXPECT_EQ(painted("up", colour::green, false), "up");
}

}  // namespace
}  // namespace fencegate::cli
