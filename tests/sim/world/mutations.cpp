#include <sim/world/mutations.hpp>

#include <array>

namespace sim {
namespace {

using m = mutation;
using c = checker;

constexpr std::array rows = {
    mutation_row{m::guard_accepts_any, "guard_accepts_any", c::guard, "the guard's token >= fence"},
    mutation_row{m::guard_read_keeps_fence, "guard_read_keeps_fence", c::stock, "a fenced read raises the fence"},
    mutation_row{m::released_lease_used, "released_lease_used", c::exclusion,
                 "the client's duty: it uses a lease after it called for its release"},
    mutation_row{m::one_epoch_per_process, "one_epoch_per_process", c::tokens,
                 "the register's life of a node: a process has one epoch, whatever data it loses"},
};
static_assert(rows.size() + 1 == static_cast<std::size_t>(m::count_));

}  // namespace

std::span<const mutation_row> mutations() {
    return rows;
}

const mutation_row* find_mutation(std::string_view name) {
    for (const mutation_row& row : rows) {
        if (name == row.name) return &row;
    }
    return nullptr;
}

std::optional<checker> find_checker(std::string_view name) {
    for (std::size_t c = 0; c <= static_cast<std::size_t>(checker::seal); ++c) {
        const std::string_view full = to_string(static_cast<checker>(c));
        if (name == full || name == full.substr(0, full.find(' '))) return static_cast<checker>(c);
    }
    return std::nullopt;
}

const char* to_string(checker value) {
    switch (value) {
        case c::tokens:
            return "C1 tokens";
        case c::guard:
            return "C2 guard";
        case c::stock:
            return "C3 stock";
        case c::exclusion:
            return "C4 exclusion";
        case c::liveness:
            return "C5 liveness";
        case c::leftovers:
            return "C6 leftovers";
        case c::staleness:
            return "C7 staleness";
        case c::stamps:
            return "C8 stamps";
        case c::holds:
            return "C9 holds";
        case c::seal:
            return "C10 seal";
    }
    return "unknown";
}

}  // namespace sim
