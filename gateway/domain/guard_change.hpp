#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencegate {

/// A guard_changed of the history that concerns whether changes of a table are checked. Times are in microseconds since
/// 1970.
struct guard_change {
    std::int64_t id = 0;
    std::int64_t at_us = 0;
    std::string principal;                      ///< Empty: not known.
    std::string action;                         ///< protect, unprotect, fault_found or fault_gone.
    std::string table;                          ///< With its schema; empty: a fault that concerns no single table.
    std::string renamed_from;                   ///< protect: the table's name at the call before; empty: the same.
    std::string mode;                           ///< protect: the new mode.
    std::string was;                            ///< protect, unprotect: the mode before; empty: it was not protected.
    std::optional<std::int64_t> not_before_us;  ///< fault_found: the faults may be as old as this.
    std::vector<std::string> faults;
};

}  // namespace fencegate
