#pragma once

#include <lockcore/types.hpp>

#include <algorithm>
#include <vector>

namespace lockcore {

/// The highest token heard of, by bucket: 512 KiB, whatever the number of resources. From it comes the hint that keeps
/// the nodes counting in step (docs/protocol.md R1); it is no promise, and forgetting it costs a second round at most.
class token_memory {
  public:
    void heard(const std::vector<resource_name>& resources, fencing_token token) {
        for (const resource_name& r : resources)
            highest_[r.bucket()] = std::max(highest_[r.bucket()], value_of(token));
    }
    /// `floor`: the highest token that no new one may fall below, as far as is known.
    fencing_token hint_for(const std::vector<resource_name>& resources, fencing_token floor) const {
        std::uint64_t highest = value_of(floor);
        for (const resource_name& r : resources)
            highest = std::max(highest, highest_[r.bucket()]);
        return fencing_token{highest + 1};
    }

  private:
    std::vector<std::uint64_t> highest_ = std::vector<std::uint64_t>(buckets, 0);
};

}  // namespace lockcore
