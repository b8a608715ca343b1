#pragma once

#include <cstdint>

namespace lockcore {

/// Supplies random bits for nonces; tests pass a seeded source.
class random_source {
  public:
    virtual ~random_source() = default;
    virtual std::uint64_t next() = 0;
};

}  // namespace lockcore
