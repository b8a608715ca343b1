#include <gateway/audit/event_sink.hpp>

#include <gtest/gtest.h>

using namespace fencegate;

namespace {

std::vector<history_item> items(std::size_t count, const std::string& event = "lease_granted",
                                const std::string& principal = {}) {
    history_item item;
    item.event = event;
    item.initiator.principal = principal;
    return std::vector<history_item>(count, item);
}

const std::string stream = "019ba000-0000-7000-8000-000000000001";

audit_config config_of(std::size_t buffer_max, on_full policy) {
    audit_config cfg;
    cfg.buffer_max = buffer_max;
    cfg.when_full = policy;
    return cfg;
}

}  // namespace

TEST(event_buffer, refuse_full_at_seven_eighths_takes_the_rest) {
    audit::event_buffer buffer(config_of(1'000, on_full::refuse), stream);
    EXPECT_TRUE(buffer.add(items(874)));
    EXPECT_FALSE(buffer.must_refuse_leases("a"));
    EXPECT_TRUE(buffer.add(items(1)));
    EXPECT_TRUE(buffer.must_refuse_leases("a"));
    EXPECT_TRUE(buffer.add(items(125)));
    EXPECT_EQ(buffer.dropped(), 0u);
}

TEST(event_buffer, principal_with_three_quarters_full_for_it_alone) {
    audit::event_buffer buffer(config_of(1'000, on_full::refuse), stream);
    EXPECT_TRUE(buffer.add(items(656, "lease_granted", "flood")));
    EXPECT_FALSE(buffer.must_refuse_leases("flood"));
    EXPECT_TRUE(buffer.add(items(1, "lease_granted", "flood")));
    EXPECT_TRUE(buffer.must_refuse_leases("flood"));
    EXPECT_FALSE(buffer.must_refuse_leases("good") || buffer.must_refuse_leases(""));
    buffer.take(1);
    EXPECT_FALSE(buffer.must_refuse_leases("flood"));
}

TEST(event_buffer, full_buffer_counts_new_rows_as_lost) {
    for (const auto policy : {on_full::refuse, on_full::drop}) {
        audit::event_buffer buffer(config_of(1'000, policy), stream);
        EXPECT_TRUE(buffer.add(items(999)));
        EXPECT_FALSE(buffer.add(items(2)));
        EXPECT_EQ(buffer.size(), 999u);
        EXPECT_EQ(buffer.dropped(), 2u);
        EXPECT_EQ(buffer.must_refuse_leases("a"), policy == on_full::refuse);
    }
}

TEST(event_buffer, low_priority_rows_never_fill_it) {
    audit::event_buffer buffer(config_of(1'600, on_full::refuse), stream);
    const auto denial = items(1, "request_denied").front();
    for (int i = 0; i < 100; ++i)
        EXPECT_TRUE(buffer.add_low_priority(denial));
    for (int i = 0; i < 10'000; ++i)
        EXPECT_FALSE(buffer.add_low_priority(denial));
    EXPECT_EQ(buffer.size(), 100u);
    EXPECT_EQ(buffer.dropped(), 0u);
    EXPECT_FALSE(buffer.must_refuse_leases(""));
    EXPECT_TRUE(buffer.add(items(1'200)));
    EXPECT_FALSE(buffer.must_refuse_leases("")) << "leases have the rest of it";
    buffer.finish_written(buffer.take(1'300).items.size());
    EXPECT_TRUE(buffer.add_low_priority(denial));
}

TEST(event_buffer, rows_taken_in_order_with_numbers) {
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

TEST(event_buffer, taken_rows_count_until_written_or_lost) {
    audit::event_buffer buffer(config_of(1'000, on_full::refuse), stream);
    EXPECT_TRUE(buffer.add(items(1'000)));
    buffer.take(500);
    EXPECT_EQ(buffer.size(), 1'000u);
    EXPECT_TRUE(buffer.must_refuse_leases("a"));
    EXPECT_FALSE(buffer.add(items(1)));
    buffer.finish_written(499);
    buffer.finish_lost(1);
    EXPECT_EQ(buffer.size(), 500u);
    EXPECT_FALSE(buffer.must_refuse_leases("a"));
    EXPECT_EQ(buffer.dropped(), 2u);
    EXPECT_TRUE(buffer.add(items(500)));
}

TEST(event_buffer, dropped_rows_leave_no_gap_in_numbers) {
    audit::event_buffer buffer(config_of(1'000, on_full::drop), stream);
    buffer.add(items(1'000));
    EXPECT_FALSE(buffer.add(items(1)));
    buffer.finish_written(buffer.take(1'000).items.size());
    buffer.add(items(1));
    EXPECT_EQ(buffer.take(1).first_sequence, 1'001u);
}

TEST(history_items, lease_event_has_row_per_resource) {
    lockcore::event e;
    e.kind = lockcore::event_kind::lease_granted;
    e.resources = {*lockcore::resource_name::parse("a/1"), *lockcore::resource_name::parse("b/2")};
    e.token = lockcore::fencing_token{34};
    e.actor.principal = "orders";
    e.ttl = std::chrono::seconds(10);
    e.waited = std::chrono::microseconds(2'500);
    const auto rows = audit::history_items(e);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].resource, "b/2");
    EXPECT_EQ(rows[1].fencing_token, 34u);
    EXPECT_EQ(rows[1].event, "lease_granted");
    EXPECT_EQ(rows[1].detail, R"({"ttl_ms":10000,"waited_ms":2})");
}

TEST(history_items, shared_resources_have_mode_and_grant) {
    lockcore::event e;
    e.kind = lockcore::event_kind::lease_granted;
    e.resources = {*lockcore::resource_name::parse("a/1"), *lockcore::resource_name::parse("b/2")};
    e.shared = 1;
    e.attempt_id = lockcore::nonce::from_bits(0xabcdef0123456789, 0);
    e.ttl = std::chrono::seconds(10);
    auto rows = audit::history_items(e);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].detail, R"({"ttl_ms":10000,"waited_ms":0})");
    EXPECT_EQ(rows[1].detail, R"({"mode":"shared","grant":"abcdef012345","ttl_ms":10000,"waited_ms":0})");
    e.kind = lockcore::event_kind::lease_refused;
    e.detail = "resource_locked";
    e.attempt_id = {};
    rows = audit::history_items(e);
    EXPECT_EQ(rows[1].detail, R"({"mode":"shared","reason":"resource_locked","ttl_ms":10000,"waited_ms":0})");
    e.kind = lockcore::event_kind::lease_released;
    e.detail.clear();
    e.ttl = {};
    EXPECT_EQ(audit::history_items(e)[1].detail, R"({"mode":"shared"})");
}

TEST(history_items, node_event_has_one_row_with_node) {
    lockcore::event e;
    e.kind = lockcore::event_kind::node_quarantined;
    e.detail = "redis-2";
    const auto rows = audit::history_items(e);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].resource, "");
    EXPECT_FALSE(rows[0].fencing_token.has_value());
    EXPECT_EQ(rows[0].detail, R"({"node":"redis-2"})");
}
