#include <lockcore/invariant.hpp>

#include <cstdio>
#include <cstdlib>

namespace lockcore {

void report_broken_invariant(const char* condition, const char* file, int line) noexcept {
    std::fprintf(stderr, "fencegate: broken invariant, please report it: %s (%s:%d)\n", condition, file, line);
    std::abort();
}

}  // namespace lockcore
