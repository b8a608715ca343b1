#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <gtest/gtest.h>
#include <boost/json/serialize.hpp>

namespace fencegate::http {
namespace {

std::vector<std::string> pointers(const failure& f) {
    std::vector<std::string> out;
    for (const auto& e : f.errors)
        out.push_back(e.pointer);
    return out;
}

using names = std::vector<std::string>;

TEST(http_json_io, parse_valid_then_same_value) {
    const auto v = parse_json(R"( {"a":[1,-2,18446744073709551615],"b":{"c":null,"d":true},"e":"x\u00e9\n"} )");
    ASSERT_TRUE(v);
    EXPECT_EQ(boost::json::serialize(*v), R"({"a":[1,-2,18446744073709551615],"b":{"c":null,"d":true},"e":"xé\n"})");
}

TEST(http_json_io, parse_repeated_key_then_fault_with_pointer) {
    const auto v = parse_json(R"({"a":[{"x":1},{"k":1,"y":{"z":0},"k":2,"k":3}],"a":2,"b":1})");
    ASSERT_FALSE(v);
    EXPECT_EQ(v.error().code, errc::invalid_request);
    EXPECT_EQ(pointers(v.error()), (names{"/a/1/k", "/a"}));
}

TEST(http_json_io, parse_key_repeated_with_escape_then_fault) {
    const auto v = parse_json(R"({"ab":1,"a\u0062":2})");
    ASSERT_FALSE(v);
    EXPECT_EQ(pointers(v.error()), names{"/ab"});
}

TEST(http_json_io, parse_keys_beginning_with_escapes_are_kept) {
    const auto repeated = parse_json(R"({"\u0061b":1,"\u0063d":2,"\u0065f":3,"ab":4,"ef":5})");
    ASSERT_FALSE(repeated);
    EXPECT_EQ(pointers(repeated.error()), (names{"/ab", "/ef"}));
    const auto nested = parse_json(R"({"\u0061b":{"\u0063d":["\u0000"]}})");
    ASSERT_FALSE(nested);
    EXPECT_EQ(pointers(nested.error()), names{"/ab/cd/0"});
    EXPECT_TRUE(parse_json(R"({"\u0061b":1,"\u0063b":2})"));
}

TEST(http_json_io, parse_key_with_slash_and_tilde_then_pointer_escaped) {
    const auto v = parse_json(R"({"a/b~":["\u0000"]})");
    ASSERT_FALSE(v);
    EXPECT_EQ(pointers(v.error()), names{"/a~1b~0/0"});
}

TEST(http_json_io, parse_number_that_is_no_integer_then_its_digits) {
    for (const char* text : {"0.1234567890123456", "18446744073709551616", "-9223372036854775809", "1234567890.1234567",
                             "9007199254740993.0", "1.0000000000000001e5", "1e400", "1E-400", "-1e+999", "1.50", "-0",
                             "0.0", "12345678901234567890.123456789012345678901234567890"}) {
        const auto v = parse_json(text);
        ASSERT_TRUE(v) << text;
        EXPECT_EQ(exact_digits(*v), text);
        EXPECT_TRUE(is_json_number(*v));
        EXPECT_FALSE(is_json_string(*v));
    }
    const auto long_one = std::string(200'000, '7') + "." + std::string(200'000, '3');
    EXPECT_EQ(exact_digits(*parse_json(long_one)), long_one);
}

TEST(http_json_io, parse_integer_of_64_bits_then_an_integer) {
    for (const char* text : {"0", "9223372036854775807", "-9223372036854775808", "18446744073709551615"}) {
        const auto v = parse_json(text);
        ASSERT_TRUE(v) << text;
        EXPECT_TRUE(v->is_int64() || v->is_uint64()) << text;
    }
}

TEST(http_json_io, text_that_looks_like_a_number_then_a_string) {
    const auto v = parse_json(R"("1.50")");
    ASSERT_TRUE(v);
    EXPECT_FALSE(exact_digits(*v));
    EXPECT_TRUE(is_json_string(*v));
}

TEST(http_json_io, parse_nul_character_then_fault) {
    const auto v = parse_json(R"({"a":"x\u0000y","b\u0000":1,"c":"fine"})");
    ASSERT_FALSE(v);
    EXPECT_EQ(pointers(v.error()), (names{"/a", std::string("/b\0", 3)}));
}

TEST(http_json_io, parse_pointer_after_nested_values_then_right_place) {
    const auto v = parse_json(R"({"o":{"p":[[1],{"q":1}],"r":{"s":2}},"t":[{},[],"\u0000"]})");
    ASSERT_FALSE(v);
    EXPECT_EQ(pointers(v.error()), names{"/t/2"});
}

TEST(http_json_io, parse_broken_texts_then_invalid_request) {
    for (const char* text : {"",
                             " ",
                             "{",
                             "{\"a\":1,}",
                             "[1] 2",
                             "nul",
                             "'a'",
                             "{a:1}",
                             "\"\xff\"",
                             "\"\\ud800\"",
                             "01",
                             "NaN",
                             "// x\n1",
                             "{]",
                             "not json",
                             "{\"a\":1",
                             "{\"a\":1} x",
                             "\"a\n\"",
                             "\"\xed\xa0\x80\"",
                             "\xef\xbb\xbf",
                             "\x01"}) {
        const auto v = parse_json(text);
        ASSERT_FALSE(v) << text;
        EXPECT_EQ(v.error().code, errc::invalid_request) << text;
        EXPECT_EQ(v.error().errors.size(), 1U) << text;
    }
    EXPECT_FALSE(parse_json(std::string_view("\0", 1)));
}

TEST(http_json_io, parse_depth_at_limit_then_accepted_and_beyond_then_refused) {
    const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    EXPECT_TRUE(parse_json(nested(json_depth_max)));
    EXPECT_FALSE(parse_json(nested(json_depth_max + 1)));
}

request with_body(std::string type, std::string body) {
    request r;
    if (!type.empty()) r.headers.emplace_back("content-type", std::move(type));
    r.body = std::move(body);
    return r;
}

TEST(http_json_io, parse_body_of_other_type_then_unsupported_media_type) {
    for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                             "application/xml", "multipart/form-data; boundary=x"}) {
        const auto v = parse_body(with_body(type, "{}"));
        ASSERT_FALSE(v) << type;
        EXPECT_EQ(v.error().code, errc::unsupported_media_type) << type;
    }
    for (const char* type : {"application/json", "Application/JSON; charset=utf-8", "application/json;charset=UTF-8"})
        EXPECT_TRUE(parse_body(with_body(type, "{}"))) << type;
    const auto foreign = parse_body(with_body("application/json; charset=latin1", "{}"));
    EXPECT_EQ(foreign.error().code, errc::unsupported_media_type);
    EXPECT_NE(foreign.error().detail.find("latin1"), std::string::npos);
}

TEST(http_json_io, parse_compressed_body_then_unsupported_media_type) {
    request r = with_body("application/json", "{}");
    r.headers.emplace_back("content-encoding", "gzip");
    EXPECT_EQ(parse_body(r).error().code, errc::unsupported_media_type);
}

TEST(http_json_io, parse_object_body_of_array_then_fault) {
    for (const char* body : {"[]", R"("text")", "5", "true", "null", R"([{"resource":"a"}])"})
        EXPECT_EQ(parse_object_body(with_body("application/json", body)).error().errors.at(0).pointer, "") << body;
}

TEST(http_json_io, append_string_with_special_characters_then_reads_back) {
    for (const std::string& text :
         std::vector<std::string>{"", "plain", "a\"b", "a\\b", "\n\t\x01", "é \xf0\x9f\x94\x92", "\x7f"}) {
        std::string out;
        append_json_string(out, text);
        const auto back = parse_json(out);
        ASSERT_TRUE(back) << out;
        EXPECT_EQ(back->as_string(), text);
    }
}

TEST(http_json_io, object_writer_all_kinds_then_valid_json) {
    std::string out;
    object_writer(out)
        .text("a", "x")
        .number("b", 5U)
        .boolean("c", false)
        .null("d")
        .raw("e", "[1]")
        .text_or_null("f", "")
        .end();
    EXPECT_EQ(out, R"({"a":"x","b":5,"c":false,"d":null,"e":[1],"f":null})");
}

TEST(http_fields, read_faulty_fields_then_all_reported) {
    const auto v = parse_json(R"({"i":"1","j":11,"b":1,"t":"","u":5,"k":1.0,"extra":0,"n":null})");
    ASSERT_TRUE(v);
    fault_list faults;
    const object_reader body(v->get_object(), "/at", faults);
    body.refuse_unknown({"i", "j", "b", "t", "u", "k", "n"});
    EXPECT_FALSE(body.integer("i", {0, 10}));
    EXPECT_FALSE(body.integer("j", {0, 10}));
    EXPECT_FALSE(body.integer("k", {0, 10}));
    EXPECT_FALSE(body.boolean("b"));
    EXPECT_FALSE(body.text("t", 10));
    EXPECT_FALSE(body.text("u", 10));
    EXPECT_FALSE(body.boolean("n"));
    EXPECT_FALSE(body.boolean("absent"));
    EXPECT_EQ(pointers(std::move(faults).to_failure()),
              (names{"/at/extra", "/at/i", "/at/j", "/at/k", "/at/b", "/at/t", "/at/u", "/at/n"}));
}

TEST(http_fields, more_faults_than_are_kept_then_counted) {
    fault_list faults;
    for (std::size_t i = 0; i < field_errors_max + 3; ++i)
        faults.add("/x", "y");
    const failure f = std::move(faults).to_failure();
    EXPECT_EQ(f.errors.size(), field_errors_max);
    EXPECT_EQ(f.detail, "The request has 67 faulty fields.");
}

}  // namespace
}  // namespace fencegate::http
