#pragma once

#include <lockcore/lease.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace lockcore {

/// A lease as it stands on a node: `nonce token renewals holds ttl_ms held_ms granted_ms keys`, then each on a line of
/// its own the principal, the owner and the names of the resources (empty where there is but one); then any number of
/// marks, a byte 1 before each: the names of those who wait for its end. `keys`: idempotency keys, a comma between
/// each, or `-`.
///
/// All behind nonce and token is the lease's *tail*; the nodes keep it as it is and touch only what they count.
struct lease_record {
    nonce attempt;
    fencing_token token{};
    std::uint32_t renewals = 0;
    std::uint32_t holds = 1;
    milliseconds ttl{};   ///< As last given.
    milliseconds held{};  ///< Up to then.
    wall_time granted_at;
    std::string keys = "-";
    holder by;
    std::vector<resource_name> resources;  ///< Empty: the one under whose name it stands.

    /// Nothing for text that this cluster did not write.
    static std::optional<lease_record> parse(std::string_view text);
};

/// What a lease says beyond its claims.
struct lease_state {
    milliseconds ttl{};
    std::uint64_t renewals = 0;
    std::uint32_t holds = 1;
    milliseconds held{};
    std::string_view keys = "-";
    std::string_view mark;  ///< Of the manager that wants to be told when somebody else ends it; empty: none.
};

/// The tail of a lease.
std::string lease_tail(const lease_claims& claims, const lease_state& state);

/// What an idempotency key is on the nodes: 16 hexadecimal digits of who and key, 8 of all that was asked for.
struct idempotency_mark {
    static constexpr std::size_t who_size = 16, size = 24;
    std::string text;  ///< `size` digits; empty: none was given.

    bool empty() const { return text.empty(); }
    enum class match { none, same, other_request };
    /// Whether `keys` of a lease hold this key, and for the same request.
    match found_in(std::string_view keys) const;
};
idempotency_mark make_idempotency_mark(const acquire_request& request);

}  // namespace lockcore
