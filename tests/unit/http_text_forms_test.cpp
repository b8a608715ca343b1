#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/response_head.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <gtest/gtest.h>

namespace fencegate::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST(content_type, charset_other_than_utf_8_is_found) {
    for (const char* readable :
         {"application/json", "application/json; charset=utf-8", "application/json;Charset=\"UTF-8\"",
          "application/json; charset=us-ascii; x=y", "application/json; q=charset=latin1"})
        EXPECT_EQ(find_foreign_charset(readable), "") << readable;
    EXPECT_EQ(find_foreign_charset("application/json; charset=latin1"), "latin1");
    EXPECT_EQ(find_foreign_charset("application/json; charset=utf-8; CHARSET=\"utf-16\""), "utf-16");
    EXPECT_EQ(find_foreign_charset("application/json; charset="), "\"\"");
}

TEST(http_query, text_not_utf8_then_fault_with_printable_name) {
    fault_list faults;
    const auto read =
        query_parameters("a=%C3%A9&b=%C3&%FF=1&c=%ED%A0%80&d=%C0%80&e=%F4%90%80%80&f=%F0%9F%94%92", faults);
    EXPECT_EQ(read.size(), 2u);
    const auto failure = std::move(faults).to_failure();
    std::vector<std::string> pointers;
    for (const auto& fault : failure.errors)
        pointers.push_back(fault.pointer);
    EXPECT_EQ(pointers, (std::vector<std::string>{"b", "query", "c", "d", "e"}));
}

TEST(http_utf8, invalid_bytes_are_replaced_one_by_one) {
    EXPECT_EQ(replace_invalid_utf8("a\xC3\xA9"), "a\xC3\xA9");
    EXPECT_EQ(replace_invalid_utf8("\xFF\xC3(\xC3"), "\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD");
    EXPECT_EQ(cut_utf8("a\xC3\xA9z", 2), "a");
    EXPECT_EQ(cut_utf8("a\xC3\xA9z", 3), "a\xC3\xA9");
    EXPECT_EQ(cut_utf8("ab", 2), "ab");
}

TEST(http_rfc3339, render_then_utc_with_milliseconds) {
    EXPECT_EQ(runtime::to_rfc3339(system_clock::time_point{}), "1970-01-01T00:00:00.000Z");
    EXPECT_EQ(runtime::to_rfc3339(system_clock::time_point(milliseconds(1'795'255'209'894))),
              "2026-11-21T10:00:09.894Z");
    EXPECT_EQ(runtime::to_rfc3339(system_clock::time_point(milliseconds(-1))), "1969-12-31T23:59:59.999Z");
}

TEST(http_rfc3339, parse_rendered_then_same_time) {
    for (const std::int64_t ms : {0LL, 1'795'255'209'894LL, 951'782'400'000LL, -86'400'001LL}) {
        const system_clock::time_point at{milliseconds(ms)};
        EXPECT_EQ(runtime::parse_rfc3339(runtime::to_rfc3339(at)), at);
    }
}

TEST(http_rfc3339, parse_offsets_and_fractions_then_utc) {
    const auto at = runtime::parse_rfc3339("2026-11-21T10:00:09Z");
    ASSERT_TRUE(at);
    EXPECT_EQ(runtime::parse_rfc3339("2026-11-21T12:30:09+02:30"), at);
    EXPECT_EQ(runtime::parse_rfc3339("2026-11-21t09:00:09.000000000-01:00"), at);
    EXPECT_EQ(runtime::parse_rfc3339("2026-11-21T10:00:09.000001Z"), *at + std::chrono::microseconds(1));
}

TEST(http_rfc3339, parse_not_a_time_then_empty) {
    for (const char* text : {"", "2026-11-21", "2026-11-21T10:00:09", "2026-11-21 10:00:09Z", "2026-13-01T00:00:00Z",
                             "2026-02-29T00:00:00Z", "2026-11-21T24:00:00Z", "2026-11-21T10:60:00Z",
                             "2026-11-21T10:00:60Z", "2026-11-21T10:00:09.Z", "2026-11-21T10:00:09.1234567890Z",
                             "2026-11-21T10:00:09+2:00", "2026-11-21T10:00:09Zx", "1600-01-01T00:00:00Z"}) {
        EXPECT_FALSE(runtime::parse_rfc3339(text)) << text;
    }
}

TEST(http_rfc3339, http_date_then_form_of_rfc9110) {
    EXPECT_EQ(runtime::to_http_date(system_clock::time_point(std::chrono::seconds(784'111'777))),
              "Sun, 06 Nov 1994 08:49:37 GMT");
}

TEST(http_accept, preferred_type_then_highest_quality_and_exactness) {
    const auto choose = [](std::string_view accept) {
        return preferred_type(accept, {"application/json", "text/event-stream"});
    };
    EXPECT_EQ(choose(""), 0U);
    EXPECT_EQ(choose("*/*"), 0U);
    EXPECT_EQ(choose("text/event-stream"), 1U);
    EXPECT_EQ(choose("Text/Event-Stream ; q=0.9, application/json;q=0.5"), 1U);
    EXPECT_EQ(choose("text/*"), 1U);
    EXPECT_EQ(choose("*/*, application/json;q=0"), 1U);
    for (const char* accept : {"application/*", "text/html, application/json;q=0.1", "text/html,*/*;q=0.1",
                               "APPLICATION/JSON", "application/json; charset=utf-8"})
        EXPECT_EQ(choose(accept), 0U) << accept;
    for (const char* accept : {"text/html", "application/json;q=x", "image/png", "application/xml;q=0.9, text/plain",
                               "application/json;q=0", R"(application/x; a=", application/json, ")"})
        EXPECT_EQ(choose(accept), std::nullopt) << accept;
}

TEST(http_dispatcher, traceparent_valid_then_trace_id) {
    EXPECT_EQ(trace_id_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
              "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(trace_id_of("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes"),
              "4bf92f3577b34da6a3ce929d0e0e4736");
}

TEST(http_dispatcher, traceparent_invalid_then_empty) {
    for (const char* text : {"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
                             "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                             "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                             "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"}) {
        EXPECT_EQ(trace_id_of(text), "") << text;
    }
}

TEST(http_dispatcher, request_id_valid_then_echoed_otherwise_generated) {
    request r;
    EXPECT_EQ(request_id_of(r).size(), 32U);
    for (const std::string& sent : {std::string("a b"), std::string("\x7f"), std::string("é"), std::string(129, 'x')}) {
        r.headers = {{"x-request-id", sent}};
        EXPECT_NE(request_id_of(r), sent);
    }
    r.headers = {{"x-request-id", std::string(128, '~')}};
    EXPECT_EQ(request_id_of(r), std::string(128, '~'));
}

TEST(http_query, read_parameters_then_decoded_and_checked) {
    fault_list faults;
    const query_reader q("a=x%2Fy+z&n=12&b=true&empty=", {"a", "n", "b", "empty", "absent"}, faults);
    EXPECT_EQ(q.text("a"), "x/y z");
    EXPECT_EQ(q.integer("n", {0, 12}), 12);
    EXPECT_EQ(q.boolean("b"), true);
    EXPECT_EQ(q.text("empty"), "");
    EXPECT_FALSE(q.text("absent"));
    EXPECT_TRUE(faults.empty());
}

TEST(http_query, unknown_repeated_and_faulty_parameters_then_all_reported) {
    fault_list faults;
    const query_reader q("a=1&a=2&z=1&n=13&m=1x&b=yes&nul=%00", {"a", "n", "m", "b", "nul"}, faults);
    EXPECT_FALSE(q.integer("n", {0, 12}));
    EXPECT_FALSE(q.integer("m", {0, 12}));
    EXPECT_FALSE(q.boolean("b"));
    const failure f = std::move(faults).to_failure();
    std::vector<std::string> names;
    for (const auto& e : f.errors)
        names.push_back(e.pointer);
    EXPECT_EQ(names, (std::vector<std::string>{"nul", "a", "z", "n", "m", "b"}));
}

TEST(http_query, unencoded_characters_then_accepted) {
    fault_list faults;
    const auto got = query_parameters("n=in.(\"a b\",{é})&o=%22%7B", faults);
    EXPECT_TRUE(faults.empty());
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].second, "in.(\"a b\",{é})");
    EXPECT_EQ(got[1].second, "\"{");
}

TEST(http_query, broken_encoding_then_fault) {
    fault_list faults;
    const query_reader q("a=%zz", {"a"}, faults);
    EXPECT_FALSE(faults.empty());
}

TEST(http_response_head, value_with_line_break_then_no_extra_header) {
    response r;
    r.status = 201;
    r.body = "{}";
    r.headers.emplace_back("Location", "/x\r\nEvil: 1");
    std::string out;
    render_head(out, r, {"id", "today", false, false});
    EXPECT_EQ(out,
              "HTTP/1.1 201 Created\r\nDate: today\r\nContent-Type: application/json\r\nContent-Length: "
              "2\r\nX-Request-Id: id\r\n"
              "Location: /x  Evil: 1\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: "
              "close\r\n\r\n");
}

TEST(http_response_head, status_without_body_then_no_length) {
    response r;
    r.status = 204;
    std::string out;
    render_head(out, r, {"id", "today", true, false});
    EXPECT_EQ(out,
              "HTTP/1.1 204 No Content\r\nDate: today\r\nX-Request-Id: id\r\nCache-Control: no-store\r\n"
              "X-Content-Type-Options: nosniff\r\n\r\n");
}

TEST(runtime_random, uuid_v7_then_version_variant_and_no_repeat) {
    const std::string a = runtime::uuid_v7();
    ASSERT_EQ(a.size(), 36U);
    EXPECT_EQ(a[14], '7');
    EXPECT_NE(std::string("89ab").find(a[19]), std::string::npos);
    EXPECT_NE(a, runtime::uuid_v7());
}

TEST(http_accept, parameter_of_type_then_its_value) {
    const auto nulls = [](std::string_view accept) {
        return media_parameter(accept, "application/vnd.pgrst.object+json", "nulls").value_or("-");
    };
    EXPECT_EQ(nulls("application/vnd.pgrst.object+json;nulls=stripped"), "stripped");
    EXPECT_EQ(nulls("text/csv;nulls=x, Application/vnd.pgrst.Object+json; q=0.9; NULLS=\"Stripped\""), "stripped");
    EXPECT_EQ(nulls("application/vnd.pgrst.object+json, */*;nulls=x"), "-");
    EXPECT_EQ(nulls(""), "-");
}

}  // namespace
}  // namespace fencegate::http
