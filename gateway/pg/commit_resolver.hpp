#pragma once

#include <gateway/pg/session_slot.hpp>

#include <chrono>
#include <string>

namespace fencegate::pg {

enum class landed { yes, no, unknown };

/// How long is always spent on finding out, even if the call's own deadline is near: an unknown outcome costs the
/// caller more than a wait.
inline constexpr std::chrono::milliseconds find_out_min{2'000};

/// Answers what became of a write whose connection broke during COMMIT.
///
/// Out:     `yes` or `no` are final: fencing.write_landed first waits for the guard row, which the broken transaction
/// holds until it has ended,
///          and begin_write had answered on that connection, so the row was locked. `unknown` where PostgreSQL did not
///          answer in time.
/// Timeout: `until`, but at least find_out_min from now.
/// Source:  GUARD.md; fencing.write_landed.
landed find_out(session_slot& slot, const std::string& write_id, const std::string& resource, deadline until);

}  // namespace fencegate::pg
