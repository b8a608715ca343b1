#pragma once

#include <lockcore/types.hpp>

#include <algorithm>
#include <vector>

namespace lockcore {

/// Epochs stay below this number, so that tokens stay below 2^53.
inline constexpr std::uint64_t epochs_max = (fencing_token_max + 1) / tokens_per_epoch;
/// How far the epoch of one node may be above those of all others (docs/protocol.md, CLAIMS OF ONE NODE).
inline constexpr std::uint64_t epoch_lead_max = 65'536;

/// Returns the highest epoch that one of several nodes may claim. What is above it is implausible, and counts for
/// nothing.
///
/// In: `others`: the highest epoch that another node shows; `known`: the highest that the register is known to have
///     drawn.
constexpr epoch highest_plausible_epoch(epoch others, epoch known) {
    constexpr epoch last{epochs_max - 1};
    return std::min(last, std::max(epoch{value_of(std::min(others, last)) + epoch_lead_max}, known));
}

/// Returns the epoch to which a token belongs.
constexpr epoch epoch_of(fencing_token token) {
    return epoch{value_of(token) / tokens_per_epoch};
}

/// The highest token observed in each bucket. The hint for the next ACQUIRE is made from it, so that the counters of
/// the nodes stay equal (docs/protocol.md R1). It need not be exact: without it a grant takes a second round at most.
///
/// Limits: 512 KiB for any number of resources.
class token_memory {
  public:
    /// A token that does not fit is not kept: no hint could be above it.
    void observe(const std::vector<resource_name>& resources, fencing_token token) {
        if (value_of(token) > fencing_token_max) return;
        for (const resource_name& r : resources)
            highest_[r.bucket()] = std::max(highest_[r.bucket()], value_of(token));
    }
    /// Returns a counter above every token observed for the resources. `floor`: the highest known base of a node.
    fencing_token hint_for(const std::vector<resource_name>& resources, fencing_token floor) const {
        std::uint64_t highest = value_of(floor);
        for (const resource_name& r : resources)
            highest = std::max(highest, highest_[r.bucket()]);
        return fencing_token{highest + 1};
    }

    /// Returns the epoch of the highest token observed for the resources.
    epoch highest_epoch(const std::vector<resource_name>& resources) const {
        return epoch_of(fencing_token{value_of(hint_for(resources, fencing_token{})) - 1});
    }

  private:
    std::vector<std::uint64_t> highest_ = std::vector<std::uint64_t>(buckets, 0);
};

}  // namespace lockcore
