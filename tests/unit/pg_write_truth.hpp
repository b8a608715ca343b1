#pragma once

#include "pg_fake_session.hpp"

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fencegate::pg::test {

/// Time enough; little where the server stays away, for that is waited out.
inline deadline soon(const fake_session& session) {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(session.stays_away ? 20 : 10'000);
}

inline idempotency make_key(const std::string& key) {
    return {key, std::string(64, 'a'), std::chrono::milliseconds(1000)};
}

/// What must hold whatever failed: an answer says of each write what the server holds.
inline void expect_truth(const fake_session& session, const std::string& id, const result<write_outcome>& answer) {
    const auto times = session.committed.count(id);
    EXPECT_LE(times, 1U) << id;
    if (answer) {
        EXPECT_EQ(times, 1U) << id << " was answered as done";
    } else if (!answer.error().outcome_unknown) {
        EXPECT_EQ(times, 0U) << id << " was answered as not done: " << answer.error().detail;
    }
    EXPECT_FALSE(session.open) << "a transaction was left open";
}

/// Lets each message of what `act` sends fail in turn, in each way. `act` gets a fresh session.
inline void fail_each_message(const std::function<void(fake_session&)>& act,
                              const std::vector<fault>& kinds = {fault::lost_before, fault::lost_after,
                                                                 fault::refused}) {
    fake_session whole;
    act(whole);
    ASSERT_GT(whole.messages, 2U);
    for (std::size_t at = 0; at < whole.messages; ++at) {
        for (const auto kind : kinds) {
            for (const bool stays_away : {false, true}) {
                for (const std::size_t step : {0U, 1U, 2U, 3U, 9U}) {
                    if (kind == fault::refused ? stays_away : step > 0) continue;
                    SCOPED_TRACE("message " + std::to_string(at) + " fault " + std::to_string(static_cast<int>(kind)) +
                                 " step " + std::to_string(step));
                    fake_session session;
                    session.fault_at = at;
                    session.kind = kind;
                    session.fault_step = step;
                    session.stays_away = stays_away;
                    act(session);
                }
            }
        }
    }
}

}  // namespace fencegate::pg::test
