#include <gateway/pg/connection/session_slot.hpp>

#include <gtest/gtest.h>

#include <chrono>

using namespace fencegate;
using namespace fencegate::pg;
using namespace std::chrono_literals;

namespace {

/// Whether the answer after a cut of the connection says that nothing was changed.
bool says_unchanged_if_cut(session_slot& slot) {
    slot.cut_if_overdue(std::chrono::steady_clock::now());
    return slot.known_not_committed();
}

}  // namespace

TEST(session_slot, cut_after_commit_was_sent_leaves_outcome_open) {
    postgres_config cfg;
    session_slot slot(cfg);
    const auto overdue = std::chrono::steady_clock::now() - 1h;
    slot.begin_work(overdue);
    EXPECT_TRUE(says_unchanged_if_cut(slot));
    slot.begin_work(overdue);
    slot.begin_commit();
    EXPECT_FALSE(says_unchanged_if_cut(slot)) << "also after the answer to COMMIT, which the callers do not have yet";
    slot.begin_work(overdue);
    slot.begin_commit();
    slot.begin_transaction();
    EXPECT_TRUE(says_unchanged_if_cut(slot)) << "the callers of the transaction before were answered";
}

TEST(session_slot, only_a_higher_floor_is_required) {
    using lockcore::epoch;
    static std::uint64_t floor = 7;  // that of the process stays
    EXPECT_TRUE(session_slot::require_floor(epoch{floor}));
    EXPECT_FALSE(session_slot::require_floor(epoch{floor}));
    EXPECT_FALSE(session_slot::require_floor(epoch{floor - 1}));
    EXPECT_TRUE(session_slot::require_floor(epoch{++floor}));
    ++floor;
}
