#include <gateway/cli/answers.hpp>
#include <gateway/cli/arguments.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

TEST(cli_duration, parses_number_and_unit) {
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

TEST(cli_duration, rejects_other_texts) {
    for (const char* text : {"", "10", "00", "s", "10 s", " 10s", "10s ", "-1s", "+1s", "1.5s", "10S", "1D", "1w",
                             "10sec", "1001h", "4294967296ms", "0x1s"})
        EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(cli_duration, formats_in_units_that_fit_the_length) {
    EXPECT_EQ(format_duration(milliseconds(400)), "0.4s");
    EXPECT_EQ(format_duration(milliseconds(12'500)), "12.5s");
    EXPECT_EQ(format_duration(milliseconds(200'000)), "3m20s");
    EXPECT_EQ(format_duration(milliseconds(7'500'000)), "2h05m");
}

// A hostile gateway may send a number that overflows when it is added to a time.
TEST(cli_fields, duration_is_a_hundred_years_at_most) {
    const auto answer = parse_object(
        R"({"some":1500,"none":-1,"most":9223372036854775807,"least":-9223372036854775808,"text":"1","more":1e30})");
    EXPECT_EQ(get_duration(answer, "some"), milliseconds(1'500));
    EXPECT_EQ(get_duration(answer, "none"), milliseconds(-1));
    EXPECT_EQ(get_duration(answer, "most"), std::chrono::years(100));
    EXPECT_EQ(get_duration(answer, "least"), -std::chrono::years(100));
    for (const char* name : {"text", "more", "missing"})
        EXPECT_FALSE(get_duration(answer, name)) << name;
}

TEST(cli_time_argument, names_a_time_a_day_or_a_time_ago) {
    const auto now = *runtime::parse_rfc3339("2026-11-21T10:00:09.894Z");
    EXPECT_EQ(parse_time_argument("2026-11-21T10:00:00+02:00", now), "2026-11-21T10:00:00+02:00");
    EXPECT_EQ(parse_time_argument("2024-02-29", now), "2024-02-29T00:00:00.000Z");
    EXPECT_EQ(parse_time_argument("now", now), "2026-11-21T10:00:09.894Z");
    EXPECT_EQ(parse_time_argument("today", now), "2026-11-21T00:00:00.000Z");
    EXPECT_EQ(parse_time_argument("yesterday", now), "2026-11-20T00:00:00.000Z");
    EXPECT_EQ(parse_time_argument("-1h", now), "2026-11-21T09:00:09.894Z");
    EXPECT_EQ(parse_time_argument("-7d", now), "2026-11-14T10:00:09.894Z");
}

TEST(cli_time_argument, refuses_other_texts) {
    for (const char* text : {"", "-", "1h", "+1h", "-1w", "tomorrow", "Yesterday", "2026-02-30", "2026-11-21T10:00:00",
                             "2026-11", "21.11.2026", "-1001h"})
        EXPECT_FALSE(parse_time_argument(text, {})) << text;
}

TEST(cli_gateway_address, parses_host_port_and_base) {
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

TEST(cli_gateway_address, rejects_invalid_urls) {
    for (const char* text : {"", "localhost", "localhost:8080", "ftp://localhost", "http://",
                             "http://user:secret@localhost", "http://localhost/?a=b", "http://localhost/#a"})
        EXPECT_THROW(parse_address(text), std::invalid_argument) << text;
}

TEST(cli_gateway_address, encodes_all_but_unreserved_characters) {
    EXPECT_EQ(make_target("/v1/history", {{"from", "2026-11-21T10:00:00+01:00"}, {"owner", ""}, {"to", "a b&c"}}),
              "/v1/history?from=2026-11-21T10%3A00%3A00%2B01%3A00&to=a%20b%26c");
    EXPECT_EQ(make_target("/v1/leases", {{"cursor", ""}}), "/v1/leases");
}

std::string read_all_events(event_reader& reader) {
    std::string out;
    while (const auto event = reader.next())
        out += event->name + "=" + event->data + ";";
    return out;
}

TEST(cli_event_reader, joins_pieces_cut_anywhere) {
    const std::string stream =
        ": hello\nevent: granted\ndata: {\"a\":1}\n\nevent:lost\r\ndata:one\r\ndata: two\r\n\r\nid: 7\n\n";
    for (std::size_t size = 1; size <= stream.size(); ++size) {
        event_reader reader;
        std::string seen;
        for (std::size_t at = 0; at < stream.size(); at += size) {
            reader.add(std::string_view(stream).substr(at, size));
            seen += read_all_events(reader);
        }
        EXPECT_EQ(seen, "granted={\"a\":1};lost=one\ntwo;") << size;
        EXPECT_EQ(reader.last_id(), "7") << size;
    }
}

TEST(cli_event_reader, reports_id_after_its_event_is_complete) {
    event_reader reader;
    reader.add("id: 3\n\nid: 4\ndata: x\n");
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.last_id(), "3");
    reader.add("\n");
    EXPECT_TRUE(reader.next());
    EXPECT_EQ(reader.last_id(), "4");
}

// The id is sent back in a header.
TEST(cli_event_reader, id_with_a_control_character_is_skipped) {
    event_reader reader;
    reader.add("id: 3\n\nid: 4\rX: y\n\n");
    EXPECT_FALSE(reader.next());
    EXPECT_EQ(reader.last_id(), "3");
}

TEST(cli_event_reader, rejects_event_above_size_limit) {
    event_reader reader;
    const std::string piece(event_reader::pending_max, 'a');
    reader.add(piece);
    EXPECT_THROW(reader.add("a"), std::length_error);
}

TEST(cli_table, columns_are_as_wide_as_widest_cell) {
    std::ostringstream out;
    table printed({{"name"}, {"n", true}, {"last"}}, out, {.table = true});
    printed.print({{cell("a"), cell("100"), cell("x")}, {cell("grün-2"), cell("7"), cell("y")}});
    EXPECT_EQ(out.str(),
              "name      n  last\n"
              "a       100  x\n"
              "grün-2    7  y\n");
}

TEST(cli_table, truncates_columns_in_their_order) {
    const auto print = [](std::size_t width) {
        std::ostringstream out;
        table printed({{"id"}, {"resource", false, 2}, {"detail", false, 1}}, out, {.table = true, .width = width});
        printed.print({{cell("1"), cell("inventory/sku-10001"), cell("0123456789abcdefghijklmnop")}});
        return out.str().substr(out.str().find('\n') + 1);
    };
    EXPECT_EQ(print(80), "1   inventory/sku-10001  0123456789abcdefghijklmnop\n");
    EXPECT_EQ(print(40), "1   inventory/sku-10001  0123456789abcd…\n");
    EXPECT_EQ(print(37), "1   inventory/sku-10001  0123456789a…\n");
    EXPECT_EQ(print(33), "1   inventory/sku-…  0123456789a…\n");
    EXPECT_EQ(print(5), "1   inventory/s…  0123456789a…\n");
}

TEST(cli_table, truncates_by_width_of_characters) {
    std::ostringstream out;
    table printed({{"id"}, {"a", false, 1}, {"b", false, 2}}, out, {.table = true, .width = 34});
    printed.print({{cell("1"), cell("0123456789abcdefghijklmnop"), cell("short")},
                   {cell("2"), cell("日本語の所有者さん、とても長い名前"), cell("wide")},
                   {cell("3"), cell("e\u0301tude"), cell("y")}});
    EXPECT_EQ(out.str(),
              "id  a                        b\n"
              "1   0123456789abcdefghijkl…  short\n"
              "2   日本語の所有者さん、と…  wide\n"
              "3   e\u0301tude                    y\n");
}

TEST(cli_table, truncates_no_column_below_elastic_min) {
    std::ostringstream out;
    table printed({{"id"}, {"a", false, 1}}, out, {.table = true, .width = 5});
    printed.print({{cell("123456"), cell("0123456789abcdefghijklmnop")}});
    EXPECT_EQ(out.str(), "id      a\n123456  0123456789a…\n");
}

TEST(cli_table, replaces_control_characters) {
    EXPECT_EQ(cell("a\033[31mb\n\x7f").text, "a?[31mb??");
    EXPECT_EQ(cell("a\xC2\x9B"
                   "31mb ü")
                  .text,
              "a?31mb ü");
    EXPECT_EQ(cell("a\u202Eb\u2067c\u200Fd\xff").text, "a?b?c?d?");
    EXPECT_EQ(colourize("up", colour::green, true), "\033[32mup\033[0m");
    EXPECT_EQ(colourize("up", colour::green, false), "up");
}

// The C library takes the longer forms of the first UTF-8 for characters.
TEST(cli_csv_filter, lines_lose_control_characters_on_a_terminal) {
    runtime::csv_filter filter(true);
    EXPECT_EQ(filter.take("a,\"b\n"), "");
    EXPECT_EQ(filter.take("c\"\r\nd\x1b["), "a,\"b?c\"\n");
    EXPECT_EQ(filter.take("1m\n"), "d?[1m\n");
    EXPECT_EQ(runtime::csv_filter(false).take("d\x1b["), "d\x1b[") << "a file gets the exact bytes";
}

TEST(cli_csv_filter, endless_line_is_returned_in_parts) {
    runtime::csv_filter filter(true);
    const std::string endless(runtime::csv_filter::line_bytes_max - 1, 'x');
    EXPECT_EQ(filter.take('"' + endless).size(), endless.size() + 1);
    EXPECT_EQ(filter.take("y\"\n"), "y\"\n");
}

TEST(cli_printable, bytes_beyond_unicode_are_replaced) {
    EXPECT_EQ(runtime::make_printable("a\xf4\x8f\xbf\xbf"), "a\xf4\x8f\xbf\xbf") << "U+10FFFF";
    EXPECT_EQ(runtime::make_printable("a\xf4\x90\x80\x80z"), "a????z");
    EXPECT_EQ(runtime::make_printable("a\xf8\x88\x80\x80\x80z"), "a?????z");
    EXPECT_EQ(runtime::make_printable("a\xed\xa0\x80z"), "a???z") << "a surrogate";
}

}  // namespace
}  // namespace fencegate::cli
