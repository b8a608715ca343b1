// Parsing of the scripts' answers: every form that a script's header documents, and texts that are none.
#include <proto/command.hpp>
#include <proto/lease_record.hpp>

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace lockcore {
namespace {

using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

constexpr std::array all_kinds{kind::release, kind::acquire, kind::confirm, kind::renew, kind::hold, kind::inspect,
                               kind::top_up,  kind::look,    kind::list,    kind::undo,  kind::close};

TEST(parse_reply, reads_what_acquire_answers) {
    const node_reply granted = parse_reply(kind::acquire, "0 4294967297");
    EXPECT_EQ(granted.status, status::ok);
    EXPECT_EQ(granted.value, 4294967297U);
    EXPECT_FALSE(granted.took_over);
    EXPECT_TRUE(parse_reply(kind::acquire, "0 8 1").took_over) << "the previous lease was there";

    const node_reply held = parse_reply(kind::acquire, "1 4900 7");
    EXPECT_EQ(held.status, status::held);
    EXPECT_EQ(held.remaining, 4'900ms);
    EXPECT_EQ(held.value, 7U);
    EXPECT_LT(parse_reply(kind::acquire, "1 -1 7").remaining, 0ms) << "never";
    // A hostile node may send a time that overflows when it is added to another.
    EXPECT_EQ(parse_reply(kind::acquire, "1 9223372036854775807 7").remaining, foreign_time_max);
    EXPECT_EQ(parse_reply(kind::acquire, "1 -9223372036854775808 7").remaining, -1ms);

    EXPECT_EQ(parse_reply(kind::acquire, "4").status, status::overflow);

    const node_reply own = parse_reply(kind::acquire, "6 250 abc 1 0 1\ntests\nme\n");
    EXPECT_EQ(own.status, status::own);
    EXPECT_EQ(own.remaining, 250ms);
    EXPECT_EQ(own.text, "abc 1 0 1\ntests\nme\n");

    const node_reply kept = parse_reply(kind::acquire, "7 b\na\n");
    EXPECT_EQ(kept.status, status::other_holds);
    EXPECT_EQ(kept.text, "b\na\n");
    EXPECT_EQ(parse_reply(kind::acquire, "E").status, status::error) << "no counter";
}

TEST(parse_reply, reads_what_confirm_and_top_up_answer) {
    EXPECT_EQ(parse_reply(kind::confirm, "0").status, status::ok);
    EXPECT_EQ(parse_reply(kind::confirm, "2").status, status::lost);
    const node_reply stale = parse_reply(kind::confirm, "3 9007199254740991");
    EXPECT_EQ(stale.status, status::stale);
    EXPECT_EQ(stale.value, 9007199254740991U);

    const node_reply counting = parse_reply(kind::top_up, "0 5 1");
    EXPECT_EQ(counting.status, status::ok);
    EXPECT_EQ(counting.value, 5U);
    EXPECT_TRUE(counting.counts);
    const node_reply not_counting = parse_reply(kind::top_up, "0 6 0");
    EXPECT_EQ(not_counting.status, status::ok);
    EXPECT_EQ(not_counting.value, 6U);
    EXPECT_FALSE(not_counting.counts);
    EXPECT_EQ(parse_reply(kind::top_up, "1").status, status::held) << "it says no more than that";
    EXPECT_EQ(parse_reply(kind::top_up, "4").status, status::overflow);
}

TEST(parse_reply, reads_what_renew_and_hold_answer) {
    for (const kind k : {kind::renew, kind::hold}) {
        const node_reply renewed = parse_reply(k, "0 12 40000 b\na\n");
        EXPECT_EQ(renewed.status, status::ok);
        EXPECT_EQ(renewed.value, 12U);
        EXPECT_EQ(renewed.held, 40s);
        EXPECT_EQ(renewed.text, "b\na\n");
        EXPECT_EQ(parse_reply(k, "5 1000").status, status::exhausted);
        EXPECT_EQ(parse_reply(k, "5 1000").value, 1000U);
    }
}

TEST(parse_reply, reads_what_inspect_answers) {
    const node_reply seen = parse_reply(kind::inspect, "0 900 12 10000 b\na\n");
    EXPECT_EQ(seen.status, status::ok);
    EXPECT_EQ(seen.remaining, 900ms);
    EXPECT_EQ(seen.value, 12U);
    EXPECT_EQ(seen.text, "b\na\n");
    EXPECT_EQ(seen.ttl, 10s);
}

TEST(parse_reply, reads_the_stamp_of_a_lease_that_does_not_count) {
    for (const kind k : {kind::renew, kind::hold, kind::inspect}) {
        const node_reply missing = parse_reply(k, "2");
        EXPECT_EQ(missing.status, status::lost);
        EXPECT_FALSE(missing.has_stamp);
        for (const std::uint64_t stamp : {std::uint64_t{0}, std::uint64_t{9007199254740991}}) {
            const node_reply there = parse_reply(k, "2 " + std::to_string(stamp));
            EXPECT_EQ(there.status, status::lost);
            EXPECT_TRUE(there.has_stamp) << "0 is the stamp of an installed lease";
            EXPECT_EQ(there.value, stamp);
        }
        for (const char* text : {"2 ", "2 x", "2 -1", "2 5 1", "2 99999999999999999999"})
            EXPECT_EQ(parse_reply(k, text).status, status::error) << text;
    }
    for (const kind k :
         {kind::acquire, kind::confirm, kind::release, kind::undo, kind::close, kind::look, kind::top_up})
        EXPECT_EQ(parse_reply(k, "2 5").status, status::error) << static_cast<int>(k);
}

TEST(parse_reply, reads_what_release_and_undo_answer) {
    for (const kind k : {kind::release, kind::undo}) {
        const node_reply released = parse_reply(k, "0 4 b\na\n");
        EXPECT_EQ(released.status, status::ok);
        EXPECT_EQ(released.text, "b\na\n");
        EXPECT_EQ(released.notified_waiters, 4U);
        EXPECT_EQ(parse_reply(k, "2").status, status::lost);
    }
}

TEST(parse_reply, reads_what_close_answers) {
    EXPECT_EQ(parse_reply(kind::close, "0 a\n\na").text, "a\n\na");
    EXPECT_EQ(parse_reply(kind::close, "7 a,b\n\n").status, status::other_holds);
    EXPECT_EQ(parse_reply(kind::close, "2").status, status::lost);
}

TEST(parse_reply, reads_what_look_and_list_answer) {
    const node_reply seen = parse_reply(kind::look, "0 700 abc 1 0\np\no\n");
    EXPECT_EQ(seen.remaining, 700ms);
    EXPECT_EQ(seen.text, "abc 1 0\np\no\n");
    EXPECT_EQ(parse_reply(kind::look, "2").status, status::lost);
    EXPECT_EQ(parse_reply(kind::list, "0 17\ta b\tb/c").text, "17\ta b\tb/c");
    EXPECT_EQ(parse_reply(kind::list, "0 0\t").text, "0\t");
}

TEST(parse_reply, text_that_is_no_answer_is_an_error_for_every_command) {
    for (const kind k : all_kinds) {
        for (const char* text : {"", " ", "x", "OK", "-1", "8", "9 1", "255", "99999999999999999999", "+0", "UNINIT"})
            EXPECT_EQ(parse_reply(k, text).status, status::error) << static_cast<int>(k) << " '" << text << "'";
    }
}

TEST(parse_reply, answer_without_its_numbers_is_an_error) {
    for (const auto& [k, text] : std::initializer_list<std::pair<kind, const char*>>{
             {kind::acquire, "0"},     {kind::acquire, "0 "},    {kind::acquire, "0 x"},   {kind::acquire, "0 5 x"},
             {kind::acquire, "1 100"}, {kind::acquire, "1 x 7"}, {kind::acquire, "6"},     {kind::acquire, "6 x"},
             {kind::confirm, "3"},     {kind::confirm, "3 x"},   {kind::renew, "0 1"},     {kind::hold, "0 1"},
             {kind::renew, "5"},       {kind::hold, "0"},        {kind::inspect, "0 1 2"}, {kind::release, "0"},
             {kind::undo, "0"},        {kind::top_up, "0"},      {kind::top_up, "0 5"},    {kind::top_up, "0 5 2"},
             {kind::top_up, "0 5 x"},  {kind::look, "0"},        {kind::look, "0 x"}}) {
        EXPECT_EQ(parse_reply(k, text).status, status::error) << static_cast<int>(k) << " '" << text << "'";
    }
}

TEST(parse_reply, number_that_is_too_long_is_an_error) {
    EXPECT_EQ(parse_reply(kind::acquire, "0 99999999999999999999").status, status::error);
    EXPECT_EQ(parse_reply(kind::confirm, "3 99999999999999999999").status, status::error);
    EXPECT_EQ(parse_reply(kind::inspect, "0 99999999999999999999 0 1 a\n\n").status, status::error);
}

// TOP-UP would write more digits than a lease has to honest nodes, whose scripts would then fail.
TEST(parse_reply, more_renewals_than_a_node_counts_are_an_error) {
    for (const kind k : {kind::renew, kind::hold}) {
        EXPECT_EQ(parse_reply(k, "0 999999999 0 a\n\n").status, status::ok);
        EXPECT_EQ(parse_reply(k, "0 1000000000 0 a\n\n").status, status::error);
    }
    EXPECT_EQ(parse_reply(kind::inspect, "0 900 999999999 10000 a\n\n").status, status::ok);
    EXPECT_EQ(parse_reply(kind::inspect, "0 900 1000000000 10000 a\n\n").status, status::error);
}

// Only the complete text of a script is an answer; a part of another text must not be read as a token.
TEST(parse_reply, counter_below_one_or_trailing_text_is_an_error) {
    EXPECT_EQ(parse_reply(kind::acquire, "0 0").status, status::error) << "INCR does not answer 0";
    EXPECT_EQ(parse_reply(kind::acquire, "0 -5").status, status::error);
    EXPECT_EQ(parse_reply(kind::top_up, "0 5 1x").status, status::error);
    EXPECT_EQ(parse_reply(kind::top_up, "0 5 1 1").status, status::error);
    EXPECT_EQ(parse_reply(kind::confirm, "0x").status, status::error);
    EXPECT_EQ(parse_reply(kind::confirm, "3 -1").status, status::error);
}

TEST(parse_reply, survives_any_text) {
    std::mt19937 random(7);
    constexpr std::string_view alphabet = "0123456789 -x\n@,";
    for (int i = 0; i < 20'000; ++i) {
        std::string text;
        for (unsigned n = random() % 12; n > 0; --n)
            text += alphabet[random() % alphabet.size()];
        for (const kind k : all_kinds) {
            const node_reply r = parse_reply(k, text);
            EXPECT_TRUE(r.status == status::error || static_cast<unsigned>(r.status) < script_statuses);
        }
    }
}

}  // namespace
}  // namespace lockcore
