// gateway/http: Accept-Encoding, compression, and the rules of CORS.
#include <gateway/config/authority.hpp>
#include <gateway/http/codec/gzip.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/routing/origin_rules.hpp>

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

namespace fencegate::http {
namespace {

std::string unpack(const std::string& packed) {
    z_stream stream{};
    std::string out(1 << 20, 0);
    EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
    std::string input = packed;
    stream.next_in = reinterpret_cast<unsigned char*>(input.data());
    stream.avail_in = static_cast<uInt>(input.size());
    stream.next_out = reinterpret_cast<unsigned char*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
    EXPECT_EQ(stream.avail_in, 0U);
    out.resize(stream.total_out);
    inflateEnd(&stream);
    return out;
}

TEST(http_gzip, accept_encoding_is_evaluated_with_its_q) {
    for (const char* header :
         {"gzip", "GZip", "x-gzip", "br, gzip", "gzip;q=0.1", "*", "br;q=1, *;q=0.5", "gzip, identity",
          "identity;q=0.5, gzip;q=0.5", "identity;q=0, gzip;q=0.001", "deflate,gzip;q=1.000"})
        EXPECT_TRUE(prefers_gzip(header)) << header;
    for (const char* header : {"", "identity", "br", "gzip;q=0", "gzip;q=0.000", "*;q=0", "gzip;q=0, *",
                               "identity, gzip;q=0.5", "gzip;q=x", "gzipped", "identity;q=0"})
        EXPECT_FALSE(prefers_gzip(header)) << header;
}

TEST(http_gzip, pieces_are_one_gzip_text_within_bound) {
    std::string text;
    for (unsigned i = 0; text.size() < 300'000; ++i)
        text += "{\"id\":" + std::to_string(i * 2'654'435'761U) + "}";
    std::string packed;
    gzip_encoder encoder;
    std::string_view rest = text;
    for (; rest.size() > 1'000; rest.remove_prefix(1'000))
        encoder.add(rest.substr(0, 1'000), packed);
    encoder.add_last(rest, packed);
    EXPECT_LT(packed.size(), text.size() / 2);
    EXPECT_EQ(unpack(packed), text);
}

TEST(http_gzip, text_that_does_not_shrink_stays_within_bound) {
    std::string text;
    unsigned state = 1;
    while (text.size() < 200'000)
        text += static_cast<char>((state = state * 1'664'525U + 1'013'904'223U) >> 24U);
    std::string packed;
    gzip_encoder().add_last(text, packed);
    EXPECT_LE(packed.size(), gzip_encoder::bound(text.size()));
    EXPECT_EQ(unpack(packed), text);
}

TEST(http_cors, origin_is_what_browsers_send) {
    for (const char* text : {"https://shop.example", "http://localhost:3000", "http://127.0.0.1:8080",
                             "https://[::1]:8443", "https://xn--bcher-kva.example"})
        EXPECT_TRUE(is_origin(text)) << text;
    for (const char* text :
         {"", "*", "null", "shop.example", "https://", "https://shop.example/", "https://shop.example/a",
          "https://Shop.example", "https://shop.example:443", "http://shop.example:80", "ftp://shop.example",
          "https://user@shop.example", "https://*.example", "https://shop.example.", "https://shop.example:08080"})
        EXPECT_FALSE(is_origin(text)) << text;
}

TEST(http_cors, only_listed_origin_of_preflight_gets_fields) {
    const cors_rules rules({"https://shop.example"});
    request r;
    r.headers = {{"origin", "https://shop.example"}, {"access-control-request-method", "POST"}};
    response answer;
    rules.answer_preflight(r, "GET, POST", answer);
    ASSERT_EQ(answer.headers.size(), 3U);
    EXPECT_EQ(answer.headers[0], (std::pair<std::string, std::string>{"Access-Control-Allow-Methods", "GET, POST"}));
    for (const char* origin :
         {"https://shop.example:8443", "http://shop.example", "https://shop.example.evil.example", "null", ""}) {
        r.headers[0].second = origin;
        response other;
        rules.answer_preflight(r, "GET", other);
        EXPECT_TRUE(other.headers.empty()) << origin;
        EXPECT_EQ(rules.allowed_origin(r), "") << origin;
    }
}

}  // namespace
}  // namespace fencegate::http
