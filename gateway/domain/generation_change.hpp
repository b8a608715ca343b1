#pragma once

#include <cstdint>

namespace fencegate {

/// A change of the storage generation in the history: from this row on tokens below the floor are refused.
struct generation_change {
    std::int64_t id = 0;
    std::int64_t floor = 0;
    std::int64_t last_at_us =
        0;  ///< The time of the row before it: what came later may be lost. Microseconds since 1970.
};

}  // namespace fencegate
