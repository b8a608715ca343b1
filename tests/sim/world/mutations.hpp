#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sim {

/// The checkers. README.md says what each one checks.
enum class checker : std::uint8_t {
    tokens,       ///< C1
    guard,        ///< C2
    stock,        ///< C3
    exclusion,    ///< C4
    liveness,     ///< C5
    leftovers,    ///< C6
    staleness,    ///< C7
    stamps,       ///< C8
    holds,        ///< C9
    seal,         ///< C10
    generation,   ///< C11
    lost_writes,  ///< C12
};
const char* to_string(checker c);
/// In: C1, or its whole name.
std::optional<checker> find_checker(std::string_view name);

/// A mutation leaves out one rule of a part that is simulated: the guard, the clients, the register. Those of the
/// product are patches (tests/sim/mutations). Both show that the checkers can find a violation.
enum class mutation : std::uint8_t {
    none,
    guard_accepts_any,
    guard_read_keeps_fence,
    released_lease_used,
    one_epoch_per_process,
    guard_ignores_generation,
    guard_ignores_floor,
    draws_in_any_generation,
    connection_not_compared,
    change_keeps_pair,
    pending_of_any_pair,
    fence_all_keeps_pending,
    count_,
};
struct mutation_row {
    mutation id;
    const char* name;
    checker caught_by;
    const char* left_out;
};
/// Returns every mutation with the checker that has to find it.
std::span<const mutation_row> mutations();
const mutation_row* find_mutation(std::string_view name);

}  // namespace sim
