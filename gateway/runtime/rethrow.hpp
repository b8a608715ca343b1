#pragma once

#include <exception>

namespace fencegate::runtime {

/// The completion of a coroutine that nothing awaits: throws its exception again in the thread that runs it, which ends
/// the process. A loop that ended in silence would be noticed only by what it no longer does.
inline void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
}

}  // namespace fencegate::runtime
