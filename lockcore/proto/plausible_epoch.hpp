#pragma once

#include <lockcore/types.hpp>

#include <algorithm>

namespace lockcore {

/// Epochs stay below this number, so that tokens stay below 2^53.
inline constexpr std::uint64_t epochs_max = (fencing_token_max + 1) / tokens_per_epoch;
/// How far the epoch of one node may be above those of all others (docs/protocol.md, CLAIMS OF ONE NODE).
inline constexpr std::uint64_t epoch_lead_max = 65'536;

/// Returns the highest epoch that one of several nodes may claim. What is above it is implausible, and counts for nothing.
///
/// In: `others`: the highest epoch that another node shows; `known`: the highest that the register is known to have drawn.
constexpr epoch highest_plausible_epoch(epoch others, epoch known) {
    constexpr epoch last{epochs_max - 1};
    return std::min(last, std::max(epoch{value_of(std::min(others, last)) + epoch_lead_max}, known));
}

/// Returns the epoch to which a token belongs.
constexpr epoch epoch_of(fencing_token token) {
    return epoch{value_of(token) / tokens_per_epoch};
}

}  // namespace lockcore
