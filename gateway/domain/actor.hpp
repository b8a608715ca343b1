#pragma once

#include <string>

namespace fencegate {

/// Who did it, as the history keeps it.
struct actor {
    std::string principal;  ///< The authenticated caller.
    std::string owner;      ///< The caller's own name for itself, from the lease; may be empty.
    std::string trace_id;   ///< From traceparent, 32 hexadecimal digits; may be empty.
};

}  // namespace fencegate
