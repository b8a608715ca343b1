// Queries of /v1/history, its summary and its stream, and the cursor of its pages.
#include "fault_names.hpp"

#include <gateway/api/history/history_request.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace fencegate::api {
namespace {

TEST(api_history_query, every_filter_then_read) {
    const auto q = parse_history_query(
        "resource=a%2Fb&resource_prefix=a%2F&event=write_applied&owner=o&principal=p&write_id=01a1fc68-4bc4-7371-881a-"
        "fddb4432f9eb"
        "&token_min=1&token_max=9007199254740991&trace_id=t&from=2026-11-21T10:00:00Z&to=2026-11-22T10:00:00%2B01:00&"
        "order=asc&limit=1000",
        0);
    ASSERT_TRUE(q);
    EXPECT_EQ(q->resource, "a/b");
    EXPECT_EQ(q->resource_prefix, "a/");
    EXPECT_EQ(q->event, "write_applied");
    EXPECT_EQ(q->owner, "o");
    EXPECT_EQ(q->principal, "p");
    EXPECT_EQ(q->write_id, "01a1fc68-4bc4-7371-881a-fddb4432f9eb");
    EXPECT_EQ(q->token_min, 1U);
    EXPECT_EQ(q->token_max, 9007199254740991U);
    EXPECT_EQ(q->trace_id, "t");
    EXPECT_EQ(*q->to - *q->from, std::chrono::hours(23));
    EXPECT_TRUE(q->ascending);
    EXPECT_EQ(q->limit, 1000U);
    EXPECT_FALSE(q->after);
}

TEST(api_change_query, every_filter_then_read) {
    const auto q = parse_change_query(
        "resource=a&table=public.t&key=%7B%22id%22:7,%22s%22:%22x%22%7D&column=n&principal=p&token_min=3&order=asc", 0,
        history_form::page);
    ASSERT_TRUE(q);
    EXPECT_EQ(q->resource, "a");
    EXPECT_EQ(q->table, "public.t");
    EXPECT_EQ(q->key, R"({"id":"7","s":"x"})");
    EXPECT_EQ(q->column, "n");
    EXPECT_EQ(q->principal, "p");
    EXPECT_EQ(q->token_min, 3U);
    EXPECT_TRUE(q->ascending);
    EXPECT_TRUE(q->is_found_at_once());
}

TEST(api_change_query, event_or_key_without_object_then_refused) {
    for (const char* text : {"event=write_applied", "owner=o", "key=7", "key={}", "key={\"id\":null}", "table="})
        EXPECT_FALSE(parse_change_query(text, 0, history_form::whole)) << text;
}

TEST(api_history_query, nothing_given_then_newest_hundred) {
    const auto q = parse_history_query("", 0);
    ASSERT_TRUE(q);
    EXPECT_FALSE(q->ascending);
    EXPECT_EQ(q->limit, 100U);
}

TEST(api_history_query, faults_then_all_reported_by_name) {
    const auto q = parse_history_query(
        "event=x&write_id=1&token_min=-1&token_max=9007199254740992&from=now&to=&order=up&limit=1001&cursor=!&colour="
        "red",
        0);
    ASSERT_FALSE(q);
    EXPECT_EQ(pointers(q.error()), (names{"event", "write_id", "token_min", "token_max", "from", "to", "order", "limit",
                                          "cursor", "colour"}));
    for (const auto& [name, values] : std::initializer_list<std::pair<std::string, std::vector<std::string>>>{
             {"limit", {"0", "-1", "many", "1e2", ""}},
             {"token_min", {"x", "9007199254740992", "18446744073709551616", "5&token_max=4"}},
             {"to", {"2026-13-01T00:00:00Z", "2026-01-01"}},
             {"from", {"2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"}},
             {"cursor", {"-1", "1; drop table"}},
             {"owner", {"", "%ff"}},
             {"event", {"lease_granted,", "lease_granted,lease_granted"}}}) {
        for (const std::string& value : values) {
            const auto refused = parse_history_query(name + "=" + value, 0);
            ASSERT_FALSE(refused) << name << value;
            EXPECT_EQ(pointers(refused.error()), names{name}) << value;
        }
    }
    for (const char* name : {"limit", "order", "cursor"})
        EXPECT_EQ(pointers(parse_history_query(std::string(name) + "=1", 0, history_form::stream).error()),
                  names{name});
}

TEST(api_history_summary, faults_then_reported_by_name) {
    const auto faults = [](std::string_view query) {
        const auto read = parse_history_summary(query, std::chrono::system_clock::now());
        return read ? names{} : pointers(read.error());
    };
    EXPECT_EQ(faults(""), names{});
    EXPECT_EQ(faults("bucket_ms=0&to=soon&limit=5"), (names{"bucket_ms", "to", "limit"}));
    EXPECT_EQ(faults("bucket_ms=1000"), names{"bucket_ms"}) << "3600 buckets";
    EXPECT_EQ(faults("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"), names{"from"});
    const std::string from = "bucket_ms=60000&from=2026-06-01T00:00:00Z&to=2026-06-02T09:20:00";
    EXPECT_EQ(faults(from + "Z"), names{}) << "2000 buckets";
    EXPECT_EQ(faults(from + ".001Z"), names{"bucket_ms"});
}

TEST(api_history_summary, buckets_follow_the_offset_of_from) {
    const auto offset = [](const std::string& from) {
        const auto read =
            parse_history_summary("from=" + from + "&to=2026-06-01T12:00:00Z", std::chrono::system_clock::now());
        return read ? read->offset.count() : 1;
    };
    EXPECT_EQ(offset("2026-06-01T11:00:00Z"), 0);
    EXPECT_EQ(offset("2026-06-01T13:00:00%2B02:00"), 120);
    EXPECT_EQ(offset("2026-06-01T07:30:00-03:30"), -210);
}

TEST(api_history_cursor, written_then_read_back) {
    for (const history_cursor c : {history_cursor{false, {0, 0}}, history_cursor{true, {1, 2}},
                                   history_cursor{false, {253'402'300'799'999'999, 9'223'372'036'854'775'807}}}) {
        EXPECT_EQ(parse_cursor(to_text(c)), c);
    }
    const auto q = parse_history_query("order=asc&cursor=" + to_text({true, {1'500'001, 7}}), 0);
    ASSERT_TRUE(q);
    EXPECT_EQ(q->after, (history_position{1'500'001, 7}));
    EXPECT_EQ(pointers(parse_history_query("cursor=" + to_text({true, {1'500'001, 7}}), 0).error()), names{"cursor"})
        << "of the other order";
}

TEST(api_history_cursor, of_another_cell_then_refused_by_both_numbers) {
    const std::string cursor = to_text({false, {1'500'001, 7}});
    EXPECT_EQ(parse_history_query("cursor=2~" + cursor, 2)->after, (history_position{1'500'001, 7}));
    const auto at_other = parse_history_query("cursor=2~" + cursor, 1);
    EXPECT_EQ(at_other.error().detail.substr(0, 50), "The cursor names cell 2; this gateway is of cell 1");
    EXPECT_EQ(at_other.error().facts.at("named_cell").to_number<int>(), 2);
    EXPECT_EQ(parse_history_query("cursor=2~" + cursor, 0).error().code, errc::misdirected_request);
    for (const char* mark : {"0~", "02~", "~", "65536~", "-1~", "2~2~", "x~"})
        EXPECT_EQ(pointers(parse_history_query("cursor=" + (mark + cursor), 2).error()), names{"cursor"}) << mark;
}

TEST(api_history_cursor, invented_or_changed_then_refused) {
    const std::string good = to_text({false, {1'500'001, 123}});
    for (std::size_t i = 0; i < good.size(); ++i) {
        std::string bad = good;
        bad[i] = '*';
        EXPECT_FALSE(parse_cursor(bad));
    }
    for (const char* text :
         {"", "x", "ZGVzYzo", "ZGVzYzox", "ZGVzYzoxOg", "ZGVzYzo6MQ", "ZGVzYzotMTox", "ZGVzYzoxOi0x", "ZGVzYzowMTox",
          "ZGVzYzoxOjAx", "ZGVzYzoxOjE6MQ", "ZGVzYzoyNTM0MDIzMDA4MDAwMDAwMDA6MQ", "dXA6MTox"})
        EXPECT_FALSE(parse_cursor(text)) << text;
    EXPECT_FALSE(parse_cursor(good + "A"));
}

}  // namespace
}  // namespace fencegate::api
