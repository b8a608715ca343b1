#pragma once

#include <lockcore/types.hpp>

#include <cstddef>

namespace lockcore {

/// Returns the index of the n-th node, from 0.
constexpr node_index node(std::size_t n) {
    return static_cast<node_index>(n);
}

}  // namespace lockcore
