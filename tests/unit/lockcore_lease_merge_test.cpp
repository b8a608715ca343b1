// What a node that forgot gets of the leases of others: docs/protocol.md, FAST READMISSION 5.
#include <proto/lease_merge.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace lockcore {
namespace {

using namespace std::chrono_literals;

class counting_random final : public random_source {
  public:
    std::uint64_t next() override { return ++last_; }

  private:
    std::uint64_t last_ = 0;
};

std::string id(char letter) {
    return std::string(hold_id::size, letter);
}

/// A lease as one node has it.
struct copy_of {
    std::string nonce = std::string(32, 'a');
    std::string number = "7";
    int renewals = 0;
    milliseconds ttl = 10s, held = 0s;
    std::string live = id('a'), tombstones = {}, close_mark = {};

    std::string text() const {
        return nonce + ' ' + number + ' ' + std::to_string(renewals) + ' ' + std::to_string(ttl.count()) + ' ' +
               std::to_string(held.count()) + " 5 -\norders\nworker\n\n" + live + '\n' + tombstones + '\n' + close_mark;
    }
};

class lease_merge_test : public testing::Test {
  protected:
    void add(const std::string& value, milliseconds remaining = 5s) {
        ASSERT_TRUE(merge_.add({"inventory/sku-1", remaining, value}));
    }
    /// Returns the only merged lease.
    std::optional<lease_record> take() {
        const std::vector<lease_copy> all = merge_.take(100);
        EXPECT_EQ(all.size(), 1U);
        if (all.size() != 1) return std::nullopt;
        EXPECT_EQ(all.front().resource, "inventory/sku-1");
        remaining_ = all.front().remaining;
        return lease_record::parse(all.front().value);
    }
    /// Checks that the result is a lease of nobody.
    void expect_block() {
        const auto merged = take();
        ASSERT_TRUE(merged);
        EXPECT_NE(merged->attempt_id.str(), std::string(32, 'a'));
        EXPECT_NE(merged->attempt_id.str(), std::string(32, 'b'));
        EXPECT_EQ(merged->holds.count(), 1U) << "with a live id, so that no RELEASE of another id deletes it";
        EXPECT_EQ(merged->holder, holder{});
        EXPECT_NE(merged->token, fencing_token{}) << "0 is what a node answers of a value that is no lease";
    }

    counting_random random_;
    lease_merge merge_{random_, 60s};
    milliseconds remaining_{};
};

TEST_F(lease_merge_test, lease_of_one_nonce_is_copied_without_stamp) {
    add(copy_of{}.text());
    add(copy_of{.number = "9:0"}.text());
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->attempt_id.str(), std::string(32, 'a'));
    EXPECT_EQ(merged->stamp, 0U) << "it counts only after an UPGRADE";
    EXPECT_EQ(merged->token, fencing_token{7}) << "the highest";
    EXPECT_EQ(merged->holder, (holder{"orders", "worker"}));
}

TEST_F(lease_merge_test, remaining_time_is_the_longest_and_rounded_up) {
    add(copy_of{}.text(), 3s);
    add(copy_of{}.text(), 5s);
    add(copy_of{}.text(), 4s);
    take();
    EXPECT_EQ(remaining_, 5'001ms);
}

TEST_F(lease_merge_test, key_without_ttl_gets_the_longest_ttl) {
    add(copy_of{}.text(), -1ms);
    take();
    EXPECT_EQ(remaining_, 60'001ms);
}

TEST_F(lease_merge_test, renewals_and_times_are_the_highest) {
    add(copy_of{.renewals = 3, .ttl = 10s, .held = 40s}.text());
    add(copy_of{.renewals = 5, .ttl = 9s, .held = 20s}.text());
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->renewals, 5U);
    EXPECT_EQ(merged->ttl, 10s);
    EXPECT_EQ(merged->held, 40s);
}

TEST_F(lease_merge_test, holds_are_united_without_released_ones) {
    add(copy_of{.live = id('a') + ',' + id('b')}.text());
    add(copy_of{.live = id('a') + ',' + id('c'), .tombstones = id('b')}.text());
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->holds.count(), 2U);
    EXPECT_EQ(merged->holds.text(), id('a') + ',' + id('c') + '\n' + id('b') + '\n');
}

TEST_F(lease_merge_test, close_mark_of_one_node_is_copied) {
    const std::string mark = id('a') + std::string(16, '1');
    add(copy_of{}.text());
    add(copy_of{.close_mark = mark}.text());
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->holds.close_mark(), mark);
}

TEST_F(lease_merge_test, released_lease_is_left_out) {
    add(copy_of{}.text());
    add(copy_of{.live = {}, .tombstones = id('a')}.text());
    EXPECT_TRUE(merge_.take(100).empty());
}

TEST_F(lease_merge_test, different_nonces_become_a_block) {
    add(copy_of{}.text());
    add(copy_of{.nonce = std::string(32, 'b')}.text(), 8s);
    expect_block();
    EXPECT_EQ(remaining_, 8'001ms);
}

TEST_F(lease_merge_test, third_copy_does_not_end_a_block) {
    add(copy_of{}.text());
    add(copy_of{.nonce = std::string(32, 'b')}.text());
    add(copy_of{}.text());
    expect_block();
}

TEST_F(lease_merge_test, unreadable_value_becomes_a_block_in_either_order) {
    add("?");
    add(copy_of{}.text());
    expect_block();
    add(copy_of{}.text());
    add("x");
    expect_block();
}

TEST_F(lease_merge_test, blocks_have_nonces_of_their_own) {
    for (const char* name : {"a", "b"})
        ASSERT_TRUE(merge_.add({name, 1s, "?"}));
    const std::vector<lease_copy> blocks = merge_.take(100);
    ASSERT_EQ(blocks.size(), 2U);
    EXPECT_NE(blocks[0].value.substr(0, 32), blocks[1].value.substr(0, 32));
}

TEST_F(lease_merge_test, takes_each_lease_once) {
    for (int n = 0; n < 25; ++n)
        ASSERT_TRUE(merge_.add({std::to_string(n), 1s, copy_of{}.text()}));
    std::vector<std::string> taken;
    for (const std::size_t expected : {10U, 10U, 5U, 0U}) {
        const std::vector<lease_copy> part = merge_.take(10);
        EXPECT_EQ(part.size(), expected);
        for (const lease_copy& copy : part)
            taken.push_back(copy.resource);
    }
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(std::unique(taken.begin(), taken.end()), taken.end());
    EXPECT_EQ(taken.size(), 25U);
}

TEST_F(lease_merge_test, copies_above_the_limit_are_refused) {
    const std::string large(1U << 20U, 'x');
    std::size_t taken = 0;
    while (taken < 100 && merge_.add({std::to_string(taken), 1s, large}))
        ++taken;
    EXPECT_EQ(taken, lease_merge::bytes_max / large.size() - 1);
    EXPECT_FALSE(merge_.add({"further", 1s, "?"}));
    EXPECT_EQ(merge_.take(100).size(), taken);
    lease_merge another(random_, 60s);
    for (int copies = 0; copies < 100; ++copies)
        EXPECT_TRUE(another.add({"a", 1s, large})) << "a key counts once";
}

}  // namespace
}  // namespace lockcore
