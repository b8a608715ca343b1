#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/random_source.hpp>
#include <proto/hold_view.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace lockcore {

/// A lease as a node stores it. The first line is `nonce stamp renewals ttl_ms held_ms granted_ms keys`; then follow,
/// with a line each, the principal, the owner, the names of the resources (empty if there is only one; separated by
/// resource_name::separator), the ids of the live holds, the tombstones, and the CLOSE marks (the id of the hold and 16 digits of the call, each; empty: not closed).
/// After that come any number of wake marks, each after a byte 1: the managers to notify when the lease ends. `keys`
/// has the digests of idempotency keys, each as `digest:hold id` with the tentative id, separated by commas; or it is
/// `-`.
///
/// The second word is one number, which is both the stamp of the lease on this node and its token, or `stamp:token` if
/// they differ (token 0: the lease has none on this node yet).
///
/// Everything after nonce and stamp is the *tail* of the lease.
struct lease_record {
    nonce attempt_id;
    std::uint64_t stamp = 0;  ///< The counter of the node when the lease was written there.
    fencing_token token{};
    std::uint32_t renewals = 0;
    hold_view holds;
    milliseconds ttl{};   ///< The ttl that the lease was last given.
    milliseconds held{};  ///< For how long the lease had been held at that time.
    wall_time granted_at;
    std::string keys = "-";
    lockcore::holder holder;
    std::vector<resource_name> resources;  ///< Empty: only the resource in the key's name.

    /// Returns a lease of nobody, which nobody releases and which lasts for `ttl`, under a nonce of its own (docs/protocol.md, FAST READMISSION 5).
    static lease_record make_block(random_source& random, milliseconds ttl);
    /// A block was granted at no time: its granted_at is 0. A lease that was granted in the first millisecond of 1970 is
    /// taken for one, which excludes others as well.
    bool is_block() const { return granted_at == wall_time{}; }
    /// Returns whether another node has the same lease, with this token or another one. A faulty node may report the nonce
    /// of a lease as that of another holder or of other resources.
    bool is_same_lease(const lease_record& other) const;
    /// Adds the holds and keys that another node has of the same lease.
    void merge(const lease_record& other);
    /// Returns the value of a lease key. Of the idempotency keys it has the newest ones that a node keeps; it has no wake
    /// marks, and no hold that was released.
    std::string format() const;
    /// Parses the value of a lease key; empty for a text of another form.
    static std::optional<lease_record> parse(std::string_view text);
};

/// What the tail of a lease has in addition to its claims.
struct lease_state {
    milliseconds ttl{};
    std::uint64_t renewals = 0;
    milliseconds held{};
    std::string_view key;            ///< The digest of the hold's idempotency key; empty: none.
    std::string_view wake_mark;      ///< The manager to notify when another one ends the lease; empty: none.
    std::string_view close_marks{};  ///< The lease refuses further holds; empty: it does not.
};

/// Returns the tail of a lease with one hold, that of the claims.
std::string lease_tail(const lease_claims& claims, const lease_state& state);

/// How a lease on a node names an idempotency key: 16 hexadecimal digits of a hash of principal and key, and 8 of a
/// hash of the other parts of the request but the owner and the wait: another process of the caller may repeat it.
struct idempotency_digest {
    static constexpr std::size_t caller_size = 16, size = 24;
    std::string text;  ///< `size` digits; empty: the request has no idempotency key.

    bool empty() const { return text.empty(); }
    enum class match { none, same, other_request };
    struct finding {
        match result = match::none;
        hold_id hold;  ///< The tentative id of the hold that was taken with the key.
    };
    /// Looks for this key in lease_record::keys, and compares the request.
    finding find_in(std::string_view keys) const;
};
idempotency_digest make_idempotency_digest(const acquire_request& request);

/// Returns what the repeats of a request with an idempotency key have in common: the key, principal and resources.
/// Empty without a key.
std::string name_request(const acquire_request& request);

}  // namespace lockcore
