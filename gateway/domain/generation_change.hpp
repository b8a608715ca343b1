#pragma once

#include <cstdint>

namespace fencegate {

/// A change of the storage generation in the history: from this row on tokens below the floor are refused.
struct generation_change {
    std::int64_t id = 0;
    std::int64_t floor = 0;
    /// The time of the last accepted write before it, in microseconds since 1970; 0: there is none. Between the failover
    /// and the change no write is accepted, but other events are recorded.
    std::int64_t last_write_at_us = 0;
};

}  // namespace fencegate
