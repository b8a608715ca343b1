// What a node that forgot gets of the leases of others: docs/protocol.md, FAST READMISSION 5.
#include <proto/fast_readmission.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

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
    std::string live = id('a'), tombstones = {}, close_marks = {};
    std::string principal = "orders";
    std::string names = {};

    std::string text() const {
        return nonce + ' ' + number + ' ' + std::to_string(renewals) + ' ' + std::to_string(ttl.count()) + ' ' +
               std::to_string(held.count()) + " 5 -\n" + principal + "\nworker\n" + names + '\n' + live + '\n' +
               tombstones + '\n' + close_marks;
    }
};

class lease_merge_test : public testing::Test {
  protected:
    explicit lease_merge_test(std::size_t nodes = 3, std::size_t sources = 2)
        : merge_(random_, nodes, sources, 60s, epoch{9}) {}

    void add(const std::string& value, milliseconds remaining = 5s, std::size_t source = 0) {
        ASSERT_TRUE(merge_.add(source, {"inventory/sku-1", remaining, value}));
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
        EXPECT_TRUE(merged->is_block());
        EXPECT_EQ(merged->holds.count(), 1U) << "with a live id, so that no RELEASE of another id deletes it";
        EXPECT_EQ(merged->holder, holder{});
        EXPECT_NE(merged->token, fencing_token{}) << "0 is what a node answers of a value that is no lease";
    }

    counting_random random_;
    lease_merge merge_;
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

TEST_F(lease_merge_test, nonce_with_another_holder_is_another_lease) {
    add(copy_of{.principal = "thief"}.text(), 5s, 0);
    add(copy_of{}.text(), 5s, 1);
    expect_block();
}

TEST_F(lease_merge_test, token_that_was_never_granted_may_be_any_lease) {
    add(copy_of{.number = std::to_string(10 * tokens_per_epoch + 1)}.text());
    expect_block();
}

TEST_F(lease_merge_test, leases_under_one_name_are_limited) {
    for (std::size_t i = 0; i <= lease_merge::leases_max; ++i) {
        const std::string nonce(nonce::from_bits(1, i).str());
        EXPECT_EQ(merge_.add(0, {"inventory/sku-1", 5s, copy_of{.nonce = nonce}.text()}), i < lease_merge::leases_max);
    }
    EXPECT_TRUE(merge_.add(0, {"inventory/sku-2", 5s, copy_of{}.text()}));
}

TEST_F(lease_merge_test, copies_that_one_source_repeats_are_limited) {
    std::string tombstones = id('b');
    while (tombstones.size() + 200 < lease_bytes_max)
        tombstones += ',' + id('b');
    const std::string text = copy_of{.tombstones = tombstones}.text();
    std::size_t added = 0;
    while (added < 10'000 && merge_.add(0, {"inventory/sku-1", 5s, text}))
        ++added;
    EXPECT_LE(added, lease_merge::bytes_max / text.size());
    EXPECT_GE(added, lease_merge::bytes_max / text.size() - 10);
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

TEST_F(lease_merge_test, remaining_time_above_the_longest_ttl_is_shortened) {
    add(copy_of{.ttl = 90s}.text(), 70s);
    take();
    EXPECT_EQ(remaining_, 60'001ms);
}

TEST_F(lease_merge_test, remaining_time_above_the_own_ttl_is_shortened) {
    add(copy_of{.ttl = 10s}.text(), 50s, 0);
    add(copy_of{.ttl = 20s}.text(), 15s, 1);
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(remaining_, 15'001ms) << "the clock of the first node was set back";
    EXPECT_EQ(merged->ttl, 20s);
}

TEST_F(lease_merge_test, block_has_the_time_that_its_key_gets_as_ttl) {
    add("?", 9s);
    const auto merged = take();
    ASSERT_TRUE(merged && merged->is_block());
    EXPECT_EQ(remaining_, 9'001ms);
    EXPECT_EQ(merged->ttl, remaining_) << "a script gives a key with more time the ttl of its lease";
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

TEST_F(lease_merge_test, undone_tentative_id_leaves_the_confirmed_hold) {
    const std::string tentative = id('a'), confirmed = std::string(hold_id::size - 1, 'a') + 'b';
    add(copy_of{.live = confirmed}.text());
    add(copy_of{.live = id('c'), .tombstones = tentative}.text());
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->holds.count(), 2U);
    EXPECT_EQ(merged->holds.text(), confirmed + ',' + id('c') + '\n' + tentative + '\n');
}

TEST_F(lease_merge_test, close_marks_of_all_nodes_are_copied) {
    const std::string one = id('a') + std::string(16, '1'), two = id('a') + std::string(16, '2');
    add(copy_of{.close_marks = one}.text());
    add(copy_of{.close_marks = two + one}.text());
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->holds.close_marks(), one + two);
}

TEST_F(lease_merge_test, released_lease_is_left_out) {
    add(copy_of{}.text());
    add(copy_of{.live = {}, .tombstones = id('a')}.text());
    EXPECT_TRUE(merge_.take(100).empty());
}

// One of five nodes forgot, and the four others are read: a valid lease is on two of them, or a block in its place.
class lease_merge_of_five_nodes_test : public lease_merge_test {
  protected:
    lease_merge_of_five_nodes_test() : lease_merge_test(5, 4) {}
};

TEST_F(lease_merge_of_five_nodes_test, lease_that_cannot_be_valid_is_no_reason_for_a_block) {
    const std::string b = copy_of{.nonce = std::string(32, 'b')}.text();
    for (const std::size_t odd : {0U, 1U, 3U}) {
        for (std::size_t source = 0; source < 4; ++source)
            add(source == odd ? b : copy_of{}.text(), source == odd ? 9s : 5s, source);
        const auto merged = take();
        ASSERT_TRUE(merged);
        EXPECT_EQ(merged->attempt_id.str(), std::string(32, 'a')) << odd;
        EXPECT_EQ(remaining_, 5'001ms) << "of this lease";
    }
}

TEST_F(lease_merge_of_five_nodes_test, two_leases_that_may_be_valid_become_a_block) {
    for (const std::size_t source : {0U, 1U})
        add(copy_of{}.text(), 5s, source);
    for (const std::size_t source : {2U, 3U})
        add(copy_of{.nonce = std::string(32, 'b')}.text(), 8s, source);
    expect_block();
    EXPECT_EQ(remaining_, 8'001ms);
}

TEST_F(lease_merge_of_five_nodes_test, leases_that_cannot_be_valid_are_left_out) {
    for (const std::size_t source : {0U, 1U, 2U}) {
        add(copy_of{.nonce = std::string(32, static_cast<char>('a' + source))}.text(), 5s, source);
        ASSERT_TRUE(merge_.add(source == 0 ? 0 : 1, {"inventory/of-two", 5s, copy_of{}.text()}));
    }
    ASSERT_TRUE(merge_.add(0, {"inventory/of-one", 5s, copy_of{}.text()}));
    const std::vector<lease_copy> all = merge_.take(100);
    ASSERT_EQ(all.size(), 1U) << "one copy of four is no lease, whether or not there are others";
    EXPECT_EQ(all.front().resource, "inventory/of-two");
}

TEST_F(lease_merge_of_five_nodes_test, node_that_is_not_read_may_have_either_lease) {
    lease_merge fewer(random_, 5, 3, 60s, epoch{9});
    for (const std::size_t source : {0U, 1U})
        ASSERT_TRUE(fewer.add(source, {"inventory/sku-1", 5s, copy_of{}.text()}));
    ASSERT_TRUE(fewer.add(2, {"inventory/sku-1", 5s, copy_of{.nonce = std::string(32, 'b')}.text()}));
    EXPECT_TRUE(lease_record::parse(fewer.take(1).at(0).value)->is_block());
}

// A page may name a key twice, and the lease may have changed in between.
TEST_F(lease_merge_of_five_nodes_test, node_counts_once_for_each_lease) {
    for (int times = 0; times < 3; ++times)
        add(copy_of{.nonce = std::string(32, 'b')}.text(), 5s, 0);
    for (const std::size_t source : {0U, 1U, 2U})
        add(copy_of{}.text(), 5s, source);
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->attempt_id.str(), std::string(32, 'a'));
}

TEST_F(lease_merge_of_five_nodes_test, block_or_unreadable_value_may_stand_for_either_lease) {
    const std::string block = lease_record::make_block(random_, 60s).format();
    for (const std::string& value : {block, std::string("?"), std::string("x")}) {
        add(value, 5s, 0);
        add(copy_of{}.text(), 5s, 1);
        add(copy_of{}.text(), 5s, 2);
        add(copy_of{.nonce = std::string(32, 'b')}.text(), 5s, 3);
        expect_block();
    }
}

TEST_F(lease_merge_of_five_nodes_test, one_block_beside_one_lease_is_no_reason_for_a_block) {
    add(lease_record::make_block(random_, 60s).format(), 9s, 2);
    for (const std::size_t source : {0U, 1U, 3U})
        add(copy_of{}.text(), 5s, source);
    const auto merged = take();
    ASSERT_TRUE(merged);
    EXPECT_EQ(merged->attempt_id.str(), std::string(32, 'a'));
}

// Each may stand for another lease, which has no copy: with the node that forgot they are a majority.
TEST_F(lease_merge_of_five_nodes_test, two_blocks_beside_one_lease_become_a_block) {
    for (const std::size_t source : {0U, 1U})
        add(lease_record::make_block(random_, 60s).format(), 5s, source);
    add(copy_of{}.text(), 5s, 2);
    expect_block();
}

/// Adds a copy of a lease that shares the resource.
void add_shared(lease_merge& merge, char letter, std::size_t source) {
    const std::string nonce(32, letter);
    const std::string text = copy_of{.nonce = nonce, .names = "\tinventory/sku-1"}.text();
    ASSERT_TRUE(merge.add(source, {"inventory/sku-1\t" + nonce, 5s, text}));
}

TEST_F(lease_merge_of_five_nodes_test, shared_leases_that_may_be_valid_are_all_copied) {
    for (const std::size_t source : {0U, 1U})
        add_shared(merge_, 'a', source);
    for (const std::size_t source : {0U, 1U, 2U})
        add_shared(merge_, 'b', source);
    add_shared(merge_, 'c', 3);
    std::vector<lease_copy> all = merge_.take(1);
    ASSERT_EQ(all.size(), 1U) << "a page";
    std::ranges::move(merge_.take(100), std::back_inserter(all));
    ASSERT_EQ(all.size(), 2U);
    std::ranges::sort(all, {}, &lease_copy::resource);
    for (const std::size_t n : {0U, 1U}) {
        const std::string nonce(32, n == 0 ? 'a' : 'b');
        EXPECT_EQ(all[n].resource, "inventory/sku-1\t" + nonce);
        const auto merged = lease_record::parse(all[n].value);
        ASSERT_TRUE(merged);
        EXPECT_EQ(merged->attempt_id.str(), nonce);
        EXPECT_EQ(merged->shared, std::vector{*resource_name::parse("inventory/sku-1")});
        EXPECT_EQ(merged->stamp, 0U);
    }
}

TEST_F(lease_merge_of_five_nodes_test, shared_and_exclusive_lease_that_may_be_valid_become_a_block) {
    for (const std::size_t source : {0U, 1U})
        add_shared(merge_, 'a', source);
    for (const std::size_t source : {2U, 3U})
        add(copy_of{.nonce = std::string(32, 'b')}.text(), 5s, source);
    expect_block();
}

TEST_F(lease_merge_of_five_nodes_test, unreadable_copy_of_one_key_counts_for_all_of_the_resource) {
    add_shared(merge_, 'a', 0);
    ASSERT_TRUE(merge_.add(1, {"inventory/sku-1\t" + std::string(32, 'c'), 5s, "stranger"}));
    ASSERT_TRUE(merge_.add(1, {"inventory/sku-1\t" + std::string(32, 'd'), 5s, copy_of{}.text()}));
    EXPECT_EQ(merge_.take(100).size(), 1U) << "two nodes are unknown, and one has it";
}

TEST_F(lease_merge_of_five_nodes_test, key_of_another_writer_with_a_tab_is_no_shared_lease) {
    add(copy_of{}.text(), 5s, 0);
    add(copy_of{}.text(), 5s, 1);
    for (const std::size_t source : {2U, 3U})
        ASSERT_TRUE(merge_.add(source, {"inventory/sku-1\tx", 5s, "stranger"}));
    const std::vector<lease_copy> all = merge_.take(100);
    ASSERT_EQ(all.size(), 2U);
    for (const lease_copy& copy : all) {
        const bool is_block = lease_record::parse(copy.value)->is_block();
        EXPECT_EQ(is_block, copy.resource == "inventory/sku-1\tx") << copy.resource;
    }
}

TEST_F(lease_merge_test, each_kind_of_leases_has_its_limit) {
    const auto add_other = [&](std::uint64_t i, bool shared) {
        const std::string nonce(nonce::from_bits(1, 2 * i).str());
        const std::string text = copy_of{.nonce = nonce, .names = shared ? "\tr" : ""}.text();
        return merge_.add(0, {shared ? "r\t" + nonce : "r", 5s, text});
    };
    for (std::uint64_t i = 0; i < 2 * lease_merge::leases_max; ++i)
        ASSERT_TRUE(add_other(i, true)) << i;
    for (std::uint64_t i = 0; i < lease_merge::leases_max; ++i)
        ASSERT_TRUE(add_other(1'000 + i, false)) << i;
    EXPECT_FALSE(add_other(2'000, false));
    EXPECT_TRUE(add_other(2'000, true));
}

TEST_F(lease_merge_test, blocks_have_nonces_of_their_own) {
    for (const char* name : {"a", "b"})
        ASSERT_TRUE(merge_.add(0, {name, 1s, "?"}));
    const std::vector<lease_copy> blocks = merge_.take(100);
    ASSERT_EQ(blocks.size(), 2U);
    EXPECT_NE(blocks[0].value.substr(0, 32), blocks[1].value.substr(0, 32));
}

TEST_F(lease_merge_test, takes_each_lease_once) {
    for (int n = 0; n < 25; ++n)
        ASSERT_TRUE(merge_.add(0, {std::to_string(n), 1s, copy_of{}.text()}));
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
    while (taken < 100 && merge_.add(0, {std::to_string(taken), 1s, large}))
        ++taken;
    EXPECT_EQ(taken, lease_merge::bytes_max / large.size() - 1);
    EXPECT_FALSE(merge_.add(0, {"further", 1s, "?"}));
    EXPECT_EQ(merge_.take(100).size(), taken);
    lease_merge another(random_, 3, 2, 60s, epoch{9});
    for (const std::size_t source : {0U, 1U}) {
        for (std::size_t i = 0; i < taken; ++i)
            EXPECT_TRUE(another.add(source, {std::to_string(i), 1s, large})) << "copies of several sources count once";
    }
}

}  // namespace
}  // namespace lockcore
