#pragma once

#include <string>

namespace fencegate {

/// Who made a call, as the history records it.
struct actor {
    std::string principal;  ///< The authenticated caller.
    std::string owner;      ///< The owner of the lease, which the caller chose; may be empty.
    std::string trace_id;   ///< From traceparent, 32 hexadecimal digits; may be empty.
};

}  // namespace fencegate
