#pragma once

#include <lockcore/lease.hpp>
#include <proto/hold_view.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace lockcore {

/// A lease as it stands on a node: `nonce token renewals ttl_ms held_ms granted_ms keys`, then each on a line of its
/// own the principal, the owner, the names of the resources (empty where there is but one), the ids of the live holds,
/// the tombstones of released ones, and the mark of CLOSE (the id of the hold, 16 digits of the attempt; empty: it is
/// open); then any number of marks, a
/// byte 1 before each: the names of those who wait for its end. `keys`: idempotency keys, each with a colon and the id
/// of its hold, a comma between two; or `-`.
///
/// All behind nonce and token is the lease's *tail*. Older versions wrote another form: to each of the two, the other's
/// leases are somebody else's.
struct lease_record {
    nonce attempt;
    fencing_token token{};
    std::uint32_t renewals = 0;
    hold_view holds;
    milliseconds ttl{};   ///< As last given.
    milliseconds held{};  ///< Up to then.
    wall_time granted_at;
    std::string keys = "-";
    holder by;
    std::vector<resource_name> resources;  ///< Empty: the one under whose name it stands.

    /// Adds the holds and keys that another node tells of the same lease.
    void merge(const lease_record& other);
    /// Nothing for text that this cluster did not write.
    static std::optional<lease_record> parse(std::string_view text);
};

/// What a lease says beyond its claims.
struct lease_state {
    milliseconds ttl{};
    std::uint64_t renewals = 0;
    milliseconds held{};
    std::string_view key;   ///< Idempotency key of the hold; empty: none.
    std::string_view mark;  ///< Of the manager that wants to be told when somebody else ends it; empty: none.
    bool closed = false;    ///< It refuses further holds.
};

/// The tail of a lease with one hold, that of the claims.
std::string lease_tail(const lease_claims& claims, const lease_state& state);

/// What an idempotency key is on the nodes: 16 hexadecimal digits of who and key, 8 of all that was asked for.
struct idempotency_mark {
    static constexpr std::size_t who_size = 16, size = 24;
    std::string text;  ///< `size` digits; empty: none was given.

    bool empty() const { return text.empty(); }
    enum class match { none, same, other_request };
    struct finding {
        match what = match::none;
        hold_id hold;  ///< That it took.
    };
    /// Whether `keys` of a lease hold this key, and for the same request.
    finding found_in(std::string_view keys) const;
};
idempotency_mark make_idempotency_mark(const acquire_request& request);

}  // namespace lockcore
