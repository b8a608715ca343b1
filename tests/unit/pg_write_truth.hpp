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

/// Returns a deadline far ahead; a near one where the server stays unreachable, because the code waits until then.
inline deadline soon(const fake_session& session) {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(session.stays_unreachable ? 20 : 10'000);
}

inline idempotency_key make_key(const std::string& key) {
    return {key, std::string(64, 'a'), std::chrono::milliseconds(1000)};
}

/// Checks that the answer agrees with the state of the server, whatever failed.
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

/// Runs `act` with a new session for each message that it sends and each way in which that message can fail.
inline void fail_each_message(const std::function<void(fake_session&)>& act,
                              const std::vector<fault>& kinds = {fault::lost_before, fault::lost_after,
                                                                 fault::refused}) {
    fake_session whole;
    act(whole);
    ASSERT_GT(whole.messages, 2U);
    for (std::size_t at = 0; at < whole.messages; ++at) {
        for (const auto kind : kinds) {
            for (const bool stays_unreachable : {false, true}) {
                for (const std::size_t step : {0U, 1U, 2U, 3U, 9U}) {
                    if (kind == fault::refused ? stays_unreachable : step > 0) continue;
                    SCOPED_TRACE("message " + std::to_string(at) + " fault " + std::to_string(static_cast<int>(kind)) +
                                 " step " + std::to_string(step));
                    fake_session session;
                    session.fault_at = at;
                    session.kind = kind;
                    session.fault_step = step;
                    session.stays_unreachable = stays_unreachable;
                    act(session);
                }
            }
        }
    }
}

}  // namespace fencegate::pg::test
