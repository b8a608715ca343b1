#pragma once

namespace lockcore {

/// Writes what was broken, and where, to standard error, and ends the process with SIGABRT.
[[noreturn]] void report_broken_invariant(const char* condition, const char* file, int line) noexcept;

}  // namespace lockcore

/// Ends the process where the condition does not hold, in every build: a gateway that goes on could grant a lease
/// twice, or give one caller the answer of another. For what the code itself guarantees; never for input, nor for what
/// a node, PostgreSQL or a caller says.
#define LOCKCORE_INVARIANT(condition) \
    (static_cast<bool>(condition) ? void() : ::lockcore::report_broken_invariant(#condition, __FILE_NAME__, __LINE__))
