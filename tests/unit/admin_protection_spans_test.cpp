#include <gateway/admin/history_checker.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

using fencegate::guard_change;
using fencegate::admin::open_reason;
using fencegate::admin::protection_spans;

namespace {

const std::string table = "public.item";

guard_change change(std::int64_t at, const std::string& action, const std::string& mode = "",
                    const std::string& was = "") {
    guard_change out;
    out.at_us = at;
    out.action = action;
    out.table = table;
    out.mode = mode;
    out.was = was;
    out.principal = "alice";
    return out;
}

guard_change faults(std::int64_t at, const std::string& action, std::vector<std::string> found) {
    auto out = change(at, action);
    out.faults = std::move(found);
    return out;
}

protection_spans replay(const std::vector<guard_change>& changes, std::optional<std::int64_t> from = std::nullopt) {
    protection_spans out(from);
    for (const auto& c : changes)
        out.add(c);
    out.finish();
    return out;
}

}  // namespace

TEST(protection_spans, table_protected_once_has_no_span) {
    const auto found = replay({change(10, "protect", "enforce"), change(20, "protect", "enforce", "enforce")});
    EXPECT_TRUE(found.spans().empty());
    EXPECT_EQ(found.protected_since().at(table), 10);
    EXPECT_EQ(found.recorded_since_us(), 10);
}

TEST(protection_spans, unprotect_opens_until_protect) {
    const auto found = replay({change(10, "protect", "enforce"), change(20, "unprotect", "", "enforce"),
                               change(30, "protect", "enforce"), change(40, "unprotect", "", "enforce")});
    ASSERT_EQ(found.spans().size(), 2u);
    EXPECT_EQ(found.spans()[0].reason, open_reason::unprotected);
    EXPECT_EQ(found.spans()[0].from_us, 20);
    EXPECT_EQ(found.spans()[0].to_us, 30);
    EXPECT_EQ(found.spans()[0].principal, "alice");
    EXPECT_EQ(found.spans()[1].from_us, 40);
    EXPECT_EQ(found.spans()[1].to_us, std::nullopt);
}

TEST(protection_spans, observe_mode_opens_until_enforce) {
    const auto found = replay({change(10, "protect", "observe"), change(20, "protect", "observe", "observe"),
                               change(30, "protect", "enforce", "observe")});
    ASSERT_EQ(found.spans().size(), 1u);
    EXPECT_EQ(found.spans()[0].reason, open_reason::observed);
    EXPECT_EQ(found.spans()[0].from_us, 10);
    EXPECT_EQ(found.spans()[0].to_us, 30);
}

TEST(protection_spans, renamed_table_continues_under_its_new_name) {
    auto renamed = change(20, "protect", "observe", "observe");
    renamed.table = "public.item_old";
    renamed.renamed_from = table;
    auto enforced = change(30, "protect", "enforce", "observe");
    enforced.table = renamed.table;
    const auto found = replay({change(10, "protect", "observe"), renamed, enforced, faults(40, "fault_found", {"f"})});
    EXPECT_EQ(found.protected_since().size(), 1u);
    EXPECT_EQ(found.protected_since().at("public.item_old"), 10);
    ASSERT_EQ(found.spans().size(), 2u);
    EXPECT_EQ(found.spans()[0].table, "public.item_old");
    EXPECT_EQ(found.spans()[0].from_us, 10);
    EXPECT_EQ(found.spans()[0].to_us, 30);
    EXPECT_EQ(found.spans()[1].table, table) << "another table that has the name now";
    EXPECT_EQ(found.spans()[1].reason, open_reason::fault);
}

TEST(protection_spans, mode_before_the_first_record_is_known) {
    const auto found = replay({change(30, "protect", "enforce", "observe")});
    EXPECT_EQ(found.protected_since().at(table), std::nullopt);
    ASSERT_EQ(found.spans().size(), 1u);
    EXPECT_EQ(found.spans()[0].from_us, std::nullopt);
    EXPECT_EQ(found.spans()[0].to_us, 30);
}

TEST(protection_spans, faults_open_until_the_last_is_gone) {
    auto first = faults(20, "fault_found", {"a", "b"});
    first.not_before_us = 12;
    const auto found = replay({change(10, "protect", "enforce"), first, faults(25, "fault_found", {"b", "c"}),
                               faults(30, "fault_gone", {"a", "b"}), faults(40, "fault_gone", {"c"})});
    ASSERT_EQ(found.spans().size(), 1u);
    EXPECT_EQ(found.spans()[0].reason, open_reason::fault);
    EXPECT_EQ(found.spans()[0].from_us, 12);
    EXPECT_EQ(found.spans()[0].found_at_us, 20);
    EXPECT_EQ(found.spans()[0].to_us, 40);
    EXPECT_EQ(found.spans()[0].faults, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(protection_spans, spans_that_ended_before_are_left_out) {
    const std::vector<guard_change> changes{change(10, "protect", "enforce"), change(20, "unprotect", "", "enforce"),
                                            change(30, "protect", "enforce")};
    EXPECT_EQ(replay(changes, 29).spans().size(), 1u);
    EXPECT_TRUE(replay(changes, 30).spans().empty());
}

TEST(protection_spans, spans_beyond_the_limit_are_counted) {
    std::vector<guard_change> changes;
    for (std::size_t i = 0; i < protection_spans::spans_max + 7; ++i) {
        changes.push_back(change(static_cast<std::int64_t>(2 * i), "unprotect", "", "enforce"));
        changes.push_back(change(static_cast<std::int64_t>(2 * i + 1), "protect", "enforce"));
    }
    const auto found = replay(changes);
    EXPECT_EQ(found.spans().size(), protection_spans::spans_max);
    EXPECT_EQ(found.left_out(), 7);
}
