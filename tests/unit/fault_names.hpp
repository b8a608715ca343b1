#pragma once

#include <gateway/domain/failure.hpp>

#include <set>
#include <string>

namespace fencegate::api {

using names = std::set<std::string>;

/// Returns the pointers of all faults of a request: JSON pointers, or names of parameters and headers.
inline names pointers(const failure& f) {
    names out;
    for (const auto& error : f.errors)
        out.insert(error.pointer);
    return out;
}

}  // namespace fencegate::api
