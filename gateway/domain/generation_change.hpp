#pragma once

#include <cstdint>

namespace fencegate {

/// A change of the storage generation in the history: from this row on tokens below the floor are refused.
struct generation_change {
    std::int64_t id = 0;
    std::int64_t floor = 0;
    /// The time of the row before it, in microseconds since 1970: what came later may be lost.
    std::int64_t last_at_us = 0;
};

}  // namespace fencegate
