#include <sim/world/mutations.hpp>

#include <array>

namespace sim {
namespace {

using m = mutation;
using c = checker;

constexpr std::array mutation_rows = {
    mutation_row{m::guard_accepts_any, "guard_accepts_any", c::guard, "the guard's token >= fence"},
    mutation_row{m::guard_read_keeps_fence, "guard_read_keeps_fence", c::stock, "a fenced read raises the fence"},
    mutation_row{m::released_lease_used, "released_lease_used", c::exclusion,
                 "the client does not use a lease after it called for its release"},
    mutation_row{m::one_epoch_per_process, "one_epoch_per_process", c::tokens,
                 "the register draws an epoch for each life of a node"},
    mutation_row{m::guard_ignores_generation, "guard_ignores_generation", c::generation,
                 "the guard lets nothing in while the generation differs"},
    mutation_row{m::guard_ignores_floor, "guard_ignores_floor", c::generation, "the guard's token >= floor"},
    mutation_row{m::draws_in_any_generation, "draws_in_any_generation", c::stamps,
                 "the register draws no epoch while the generation differs"},
    mutation_row{m::connection_not_compared, "connection_not_compared", c::generation,
                 "a gateway compares the pair and the floor on a new connection"},
    mutation_row{m::change_keeps_pair, "change_keeps_pair", c::generation,
                 "the beginning of a change forgets a pair with another system identifier"},
    mutation_row{m::pending_of_any_pair, "pending_of_any_pair", c::generation,
                 "a pending change is continued on its own server only"},
    mutation_row{m::fence_all_keeps_pending, "fence_all_keeps_pending", c::generation,
                 "fence_all clears the pending change"},
};
static_assert(mutation_rows.size() + 1 == static_cast<std::size_t>(m::count_));

}  // namespace

std::span<const mutation_row> mutations() {
    return mutation_rows;
}

const mutation_row* find_mutation(std::string_view name) {
    for (const mutation_row& row : mutation_rows) {
        if (name == row.name) return &row;
    }
    return nullptr;
}

std::optional<checker> find_checker(std::string_view name) {
    for (std::size_t c = 0; c <= static_cast<std::size_t>(checker::lost_writes); ++c) {
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
        case c::generation:
            return "C11 generation";
        case c::lost_writes:
            return "C12 lost writes";
    }
    return "unknown";
}

}  // namespace sim
