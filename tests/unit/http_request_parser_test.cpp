#include <gateway/http/transport/request_parser.hpp>

#include <gtest/gtest.h>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>

namespace fencegate::http {
namespace {

struct parsed {
    bool done = false;
    bool refused = false;
    bool too_large = false;
    request message;
    std::string authorization;
    std::string fault;
    std::string host;
    bool header_too_large = false;
};

boost::system::error_code read(request_parser& p, boost::beast::flat_buffer& arrived, std::string_view piece) {
    arrived.commit(boost::asio::buffer_copy(arrived.prepare(piece.size()), boost::asio::buffer(piece)));
    boost::system::error_code ec;
    p.read(arrived, ec);
    return ec;
}

/// Parses the text in two pieces, cut after `cut` bytes.
parsed parse(std::string_view text, std::size_t cut) {
    http_config cfg;
    cfg.body_max_bytes = 1024;
    cfg.header_max_bytes = 1024;
    cfg.header_fields_max = 16;
    request_parser p(cfg);
    parsed out;
    boost::beast::flat_buffer arrived;
    for (const std::string_view piece : {text.substr(0, cut), text.substr(cut)}) {
        const auto ec = read(p, arrived, piece);
        if (!ec) continue;
        out.refused = true;
        out.fault = p.fault();
        out.header_too_large = p.exceeded_header_limit();
        out.too_large = ec == boost::beast::http::error::body_limit;
        return out;
    }
    out.done = p.is_done();
    out.message = std::move(p.message);
    out.authorization = p.authorization;
    out.host = p.host;
    return out;
}

void expect_refused(std::string_view text) {
    for (std::size_t cut = 0; cut <= text.size(); ++cut)
        EXPECT_TRUE(parse(text, cut).refused) << text << " cut at " << cut;
}

TEST(http_request_parser, request_cut_anywhere_then_same_message) {
    const std::string text =
        "POST /v1/leases?a=b HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer k\r\nX-Y: "
        "Z\r\nContent-Length: 4\r\n\r\nbody";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        const parsed got = parse(text, cut);
        ASSERT_TRUE(got.done) << cut;
        EXPECT_EQ(got.message.verb, method::post);
        EXPECT_EQ(got.message.path, "/v1/leases");
        EXPECT_EQ(got.message.query, "a=b");
        EXPECT_EQ(got.message.body, "body");
        EXPECT_EQ(got.message.header("x-y"), "Z");
        EXPECT_EQ(got.authorization, "Bearer k");
        EXPECT_FALSE(got.message.has_header("authorization")) << "the key is not passed on";
    }
}

TEST(http_request_parser, chunked_body_cut_anywhere_then_joined_and_trailers_dropped) {
    const std::string text =
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1\r\ny\r\n0\r\nFencing-Lease: "
        "evil\r\n\r\n";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        const parsed got = parse(text, cut);
        ASSERT_TRUE(got.done) << cut;
        EXPECT_EQ(got.message.body, "body");
        EXPECT_FALSE(got.message.has_header("fencing-lease"));
    }
}

TEST(http_request_parser, ambiguous_heads_then_refused) {
    expect_refused("GET / HTTP/1.1\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    expect_refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_refused("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n");
    expect_refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    expect_refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx");
    expect_refused("GET / HTTP/1.1\r\nHost: a\r\nFencing-Lease: x\r\nFencing-Lease: y\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nAuthorization: y\r\n\r\n");
    expect_refused("GET /#f HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    expect_refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n");
    expect_refused("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n");
    expect_refused("GET / HTTP/9.9\r\nHost: a\r\n\r\n");
    expect_refused("GET\r\n\r\n");
    expect_refused("\r\n\r\nnonsense\r\n\r\n");
    expect_refused("\x16\x03\x01\x02" + std::string("\0\1\0\1\xfc\3\3", 7) + std::string(64, '\0'));
}

TEST(http_request_parser, empty_chunked_body_byte_by_byte_then_done) {
    http_config cfg;
    request_parser p(cfg);
    boost::beast::flat_buffer arrived;
    for (const char byte :
         std::string_view("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")) {
        ASSERT_FALSE(p.is_done());
        const auto ec = read(p, arrived, {&byte, 1});
        ASSERT_FALSE(ec) << ec.message();
    }
    EXPECT_TRUE(p.is_done());
    EXPECT_EQ(arrived.size(), 0U);
}

TEST(http_request_parser, empty_lines_before_a_request_then_ignored) {
    for (const char* lines : {"\r\n", "\r\n\r\n"}) {
        const std::string text = std::string(lines) + "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
        for (std::size_t cut = 0; cut <= text.size(); ++cut) {
            const auto got = parse(text, cut);
            EXPECT_TRUE(got.done) << "cut at " << cut;
            EXPECT_EQ(got.message.path, "/a");
        }
        http_config cfg;
        request_parser p(cfg);
        boost::beast::flat_buffer arrived;
        EXPECT_FALSE(read(p, arrived, lines));
        EXPECT_FALSE(p.got_some()) << "an empty line begins no request";
    }
    expect_refused("\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_refused("\rGET /a HTTP/1.1\r\nHost: h\r\n\r\n");
}

TEST(http_request_parser, repeated_header_then_named) {
    const auto got = parse("GET / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: x\r\nIdempotency-Key: x\r\n\r\n", 0);
    EXPECT_EQ(got.fault, "The header Idempotency-Key is given more than once.");
    // Of two positions in a stream one would be lost.
    EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 9\r\nLast-Event-ID: 5\r\n\r\n", 0).fault,
              "The header Last-Event-ID is given more than once.");
    request_parser p({});
    boost::beast::flat_buffer arrived;
    const auto ec = read(p, arrived, "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: a\r\nx-api-key: b\r\n\r\n");
    ASSERT_TRUE(ec);
    EXPECT_EQ(make_parse_failure(p, ec, {}).errors.at(0).pointer, "x-api-key");
}

TEST(http_request_parser, repeated_list_then_joined_and_optional_header_ignored) {
    const auto got = parse(
        "GET / HTTP/1.1\r\nHost: a\r\nAccept: a/b\r\nX-Request-Id: x\r\nX-Request-Id: y\r\n"
        "Accept: c/d\r\ntraceparent: x\r\ntraceparent: y\r\ntraceparent: z\r\n\r\n",
        0);
    EXPECT_TRUE(got.done);
    EXPECT_EQ(got.message.header_list("accept"), "a/b, c/d");
    EXPECT_EQ(got.message.header("x-request-id"), "");
    EXPECT_EQ(got.message.header("traceparent"), "");
}

TEST(http_request_parser, expectation_of_http_1_0_is_ignored) {
    for (const bool http_1_0 : {true, false}) {
        http_config cfg;
        request_parser p(cfg);
        const std::string head = std::string("POST / HTTP/1.") + (http_1_0 ? "0" : "1") +
                                 "\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        boost::beast::flat_buffer arrived;
        ASSERT_FALSE(read(p, arrived, head));
        ASSERT_TRUE(p.is_header_done());
        EXPECT_EQ(p.expects_continue(), !http_1_0);
    }
}

TEST(http_request_parser, absolute_form_then_path_alone) {
    EXPECT_EQ(parse("GET http://h:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n", 0).message.path, "/p");
    EXPECT_EQ(parse("GET http://h:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n", 0).message.query, "q");
    EXPECT_EQ(parse("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", 0).message.path, "/");
}

TEST(http_request_parser, absolute_form_then_its_host_wins) {
    EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: H:1\r\n\r\n", 0).host, "H:1");
    EXPECT_EQ(parse("GET http://a:2/p HTTP/1.1\r\nHost: h\r\n\r\n", 0).host, "a:2");
    EXPECT_EQ(parse("GET HTTPS://a?q HTTP/1.1\r\nHost: h\r\n\r\n", 0).host, "a");
    expect_refused("GET http:///p HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost:\r\n\r\n");
    expect_refused("GET / HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nOrigin: http://b\r\n\r\n");
}

TEST(http_request_parser, many_fields_then_refused_trailers_too) {
    const auto fields = [](int count) {
        std::string text;
        for (int i = 0; i < count; ++i)
            text += "a: b\r\n";
        return text;
    };
    EXPECT_TRUE(parse("GET / HTTP/1.1\r\nHost: h\r\n" + fields(15) + "\r\n", 0).done);
    EXPECT_TRUE(parse("GET / HTTP/1.1\r\nHost: h\r\n" + fields(16) + "\r\n", 0).header_too_large);
    const std::string chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    EXPECT_TRUE(parse(chunked + fields(14) + "\r\n", 0).done);
    EXPECT_TRUE(parse(chunked + fields(15) + "\r\n", 0).header_too_large);
}

TEST(http_request_parser, chunk_extensions_together_then_bounded) {
    std::string text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 3; ++i)
        text += "1;" + std::string(400, 'e') + "\r\nx\r\n";
    EXPECT_TRUE(parse(text + "0\r\n\r\n", 0).header_too_large);
}

TEST(http_request_parser, body_over_the_limit_then_too_large) {
    EXPECT_TRUE(parse("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1025\r\n\r\n", 0).too_large);
    EXPECT_TRUE(parse("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n" +
                          std::string(0x401, 'x') + "\r\n0\r\n\r\n",
                      0)
                    .too_large);
}

TEST(http_request_parser, head_over_the_limit_then_refused) {
    EXPECT_TRUE(parse("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(1100, 'x') + "\r\n\r\n", 0).refused);
}

}  // namespace
}  // namespace fencegate::http
