#include <redis/resp.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace {

using lockcore::redis::reply;
using lockcore::redis::reply_reader;

TEST(ReplyReader, reads_texts_with_any_bytes) {
    reply_reader reader;
    reader.add(std::string("+OK\r\n$3\r\na\0\n\r\n$0\r\n\r\n", 20));
    EXPECT_EQ(reader.next()->text, "OK");
    EXPECT_EQ(reader.next()->text, std::string("a\0\n", 3));
    const reply* empty = reader.next();
    ASSERT_NE(empty, nullptr);
    EXPECT_EQ(empty->type, reply::kind::text);
    EXPECT_EQ(empty->text, "");
}

TEST(ReplyReader, reads_numbers_errors_nil_and_nested_arrays) {
    reply_reader reader;
    reader.add("-ERR no\r\n:-7\r\n$-1\r\n*3\r\n:1\r\n*2\r\n$2\r\nhi\r\n$-1\r\n*0\r\n+next\r\n");
    const reply* r = reader.next();
    ASSERT_NE(r, nullptr);
    EXPECT_TRUE(r->is_error());
    EXPECT_EQ(r->text, "ERR no");
    EXPECT_EQ(reader.next()->number, -7);
    EXPECT_EQ(reader.next()->type, reply::kind::nil);
    r = reader.next();
    ASSERT_NE(r, nullptr);
    ASSERT_EQ(r->elements.size(), 3U);
    EXPECT_EQ(r->elements[0].number, 1);
    ASSERT_EQ(r->elements[1].elements.size(), 2U);
    EXPECT_EQ(r->elements[1].elements[0].text, "hi");
    EXPECT_EQ(r->elements[1].elements[1].type, reply::kind::nil);
    EXPECT_EQ(r->elements[2].type, reply::kind::array);
    EXPECT_EQ(reader.next()->text, "next");
    EXPECT_EQ(reader.next(), nullptr);
    EXPECT_EQ(reader.error(), "");
}

TEST(ReplyReader, reads_replies_that_arrive_byte_by_byte) {
    reply_reader reader;
    const std::string two = "*2\r\n$3\r\nabc\r\n:12\r\n+OK\r\n";
    std::size_t complete = 0;
    for (const char byte : two) {
        reader.add({&byte, 1});
        while (const reply* r = reader.next()) {
            ++complete;
            if (complete == 1) {
                ASSERT_EQ(r->elements.size(), 2U);
                EXPECT_EQ(r->elements[0].text, "abc");
                EXPECT_EQ(r->elements[1].number, 12);
            } else {
                EXPECT_EQ(r->text, "OK");
                EXPECT_TRUE(r->elements.empty());
            }
        }
    }
    EXPECT_EQ(complete, 2U);
}

TEST(ReplyReader, keeps_nothing_of_the_reply_before) {
    reply_reader reader;
    reader.add("*2\r\n$3\r\nabc\r\n:12\r\n*2\r\n:5\r\n$-1\r\n$-1\r\n");
    ASSERT_NE(reader.next(), nullptr);
    const reply* r = reader.next();
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->elements[0].text, "");
    EXPECT_EQ(r->elements[0].number, 5);
    EXPECT_EQ(r->elements[1].type, reply::kind::nil);
    EXPECT_EQ(r->elements[1].number, 0);
    r = reader.next();
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->type, reply::kind::nil);
    EXPECT_TRUE(r->elements.empty());
}

TEST(ReplyReader, refuses_bytes_that_are_no_reply) {
    reply_reader reader;
    reader.add("+OK\r\nHTTP/1.1 400 Bad Request\r\n");
    EXPECT_NE(reader.next(), nullptr);
    EXPECT_EQ(reader.next(), nullptr);
    EXPECT_NE(reader.error(), "");
    reader.add("+OK\r\n");
    EXPECT_EQ(reader.next(), nullptr) << "no reply follows an error";
}

TEST(ReplyReader, refuses_a_reply_of_too_many_elements) {
    for (const std::string_view heads :
         {"*100001\r\n", "*2147483647\r\n", "*4294967295\r\n", "*9223372036854775807\r\n", "*60000\r\n*60000\r\n"}) {
        reply_reader reader;
        reader.add(heads);
        EXPECT_EQ(reader.next(), nullptr) << heads;
        EXPECT_NE(reader.error(), "") << heads;
    }
}

TEST(ReplyReader, refuses_a_reply_that_is_too_long) {
    reply_reader reader;
    reader.add("$536870912\r\n");
    const std::string part(std::size_t{1} << 20, 'x');
    std::size_t added = 0;
    while (reader.error().empty() && added < 2 * reply_reader::bytes_max) {
        reader.add(part);
        added += part.size();
        EXPECT_EQ(reader.next(), nullptr);
    }
    EXPECT_LE(added, reply_reader::bytes_max + part.size());
    EXPECT_NE(reader.error(), "");
}

TEST(ReplyReader, refuses_a_line_that_is_too_long) {
    for (const std::string begin : {"+", "-12\rx\r\r", ":1", "*1", "$1", "*2\r\n:1\r\n+"}) {
        reply_reader reader;
        reader.add(begin + std::string(reply_reader::line_bytes_max + 16'384, '1'));
        EXPECT_EQ(reader.next(), nullptr) << begin;
        EXPECT_NE(reader.error(), "") << begin;
    }
    reply_reader reader;
    reader.add("-" + std::string(60'000, 'x') + "\r\n$100000\r\n" + std::string(90'000, 'x'));
    EXPECT_NE(reader.next(), nullptr);
    EXPECT_EQ(reader.next(), nullptr);
    EXPECT_EQ(reader.error(), "") << "a text is not a line";
}

}  // namespace
