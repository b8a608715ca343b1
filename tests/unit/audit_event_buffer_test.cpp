#include <gateway/audit/event_buffer.hpp>
#include <gateway/audit/event_items.hpp>

#include <gtest/gtest.h>

using namespace fencegate;

namespace {

std::vector<history_item> items(std::size_t count, const std::string& event = "lease_granted") {
    history_item one;
    one.event = event;
    return std::vector<history_item>(count, one);
}

const std::string stream = "019ba000-0000-7000-8000-000000000001";

audit_config config_of(std::size_t most, on_full policy) {
    audit_config cfg;
    cfg.buffer_max = most;
    cfg.when_full = policy;
    return cfg;
}

}  // namespace

TEST(event_buffer, refusing_when_seven_eighths_are_taken_then_it_is_full_and_still_takes_the_rest) {
    audit::event_buffer buffer(config_of(1'000, on_full::refuse), stream);
    EXPECT_TRUE(buffer.add(items(874)));
    EXPECT_FALSE(buffer.full());
    EXPECT_TRUE(buffer.add(items(1)));
    EXPECT_TRUE(buffer.full());
    EXPECT_TRUE(buffer.add(items(125)));
    EXPECT_EQ(buffer.dropped(), 0u);
}

TEST(event_buffer, any_when_there_is_no_room_then_the_new_rows_are_counted_as_lost) {
    for (const auto policy : {on_full::refuse, on_full::drop}) {
        audit::event_buffer buffer(config_of(1'000, policy), stream);
        EXPECT_TRUE(buffer.add(items(999)));
        EXPECT_FALSE(buffer.add(items(2)));
        EXPECT_EQ(buffer.size(), 999u);
        EXPECT_EQ(buffer.dropped(), 2u);
        EXPECT_EQ(buffer.full(), policy == on_full::refuse);
    }
}

TEST(event_buffer, rows_when_taken_then_they_come_in_order_with_their_numbers) {
    audit::event_buffer buffer(config_of(1'000, on_full::drop), stream);
    buffer.add(items(2, "a"));
    buffer.add(items(1, "b"));
    const auto first = buffer.take(2);
    EXPECT_EQ(first.stream, stream);
    EXPECT_EQ(first.first_sequence, 1u);
    ASSERT_EQ(first.items.size(), 2u);
    EXPECT_EQ(first.items.back().event, "a");
    const auto second = buffer.take(500);
    EXPECT_EQ(second.first_sequence, 3u);
    ASSERT_EQ(second.items.size(), 1u);
    EXPECT_EQ(second.items.front().event, "b");
    EXPECT_TRUE(buffer.take(500).items.empty());
}

TEST(event_buffer, rows_when_taken_then_they_take_up_room_until_written_or_lost) {
    audit::event_buffer buffer(config_of(1'000, on_full::refuse), stream);
    EXPECT_TRUE(buffer.add(items(1'000)));
    buffer.take(500);
    EXPECT_EQ(buffer.size(), 1'000u);
    EXPECT_TRUE(buffer.full());
    EXPECT_FALSE(buffer.add(items(1)));
    buffer.written(499);
    buffer.lost(1);
    EXPECT_EQ(buffer.size(), 500u);
    EXPECT_FALSE(buffer.full());
    EXPECT_EQ(buffer.dropped(), 2u);
    EXPECT_TRUE(buffer.add(items(500)));
}

TEST(event_buffer, rows_when_some_had_no_room_then_the_numbers_of_the_others_have_no_gap) {
    audit::event_buffer buffer(config_of(1'000, on_full::drop), stream);
    buffer.add(items(1'000));
    EXPECT_FALSE(buffer.add(items(1)));
    buffer.written(buffer.take(1'000).items.size());
    buffer.add(items(1));
    EXPECT_EQ(buffer.take(1).first_sequence, 1'001u);
}

TEST(history_items, lease_event_when_it_covers_several_resources_then_there_is_a_row_for_each) {
    lockcore::event e;
    e.kind = lockcore::event_kind::lease_granted;
    e.resources = {*lockcore::resource_name::parse("a/1"), *lockcore::resource_name::parse("b/2")};
    e.token = lockcore::fencing_token{34};
    e.by.principal = "orders";
    e.ttl = std::chrono::seconds(10);
    const auto rows = audit::history_items(e);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].resource, "b/2");
    EXPECT_EQ(rows[1].fencing_token, 34u);
    EXPECT_EQ(rows[1].event, "lease_granted");
    EXPECT_EQ(rows[1].detail, R"({"ttl_ms":10000})");
}

TEST(history_items, node_event_when_written_then_it_has_one_row_and_names_the_node) {
    lockcore::event e;
    e.kind = lockcore::event_kind::node_quarantined;
    e.detail = "redis-2";
    const auto rows = audit::history_items(e);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].resource, "");
    EXPECT_FALSE(rows[0].fencing_token.has_value());
    EXPECT_EQ(rows[0].detail, R"({"node":"redis-2"})");
}
