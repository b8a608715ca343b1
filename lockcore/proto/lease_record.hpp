#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/secrets.hpp>
#include <lockcore/types.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore {

/// Returns the validity of a lease (docs/protocol.md R6): ttl − time elapsed since before the first send − allowance
/// for clock drift (1 % of the ttl + 2 ms). If it is not above zero there is no grant.
///
/// Source: Redlock, "the algorithm", step 3.
constexpr std::chrono::microseconds validity(milliseconds ttl, std::chrono::nanoseconds elapsed) {
    using std::chrono::microseconds;
    const auto drift = std::chrono::duration_cast<microseconds>(ttl) / 100 + milliseconds{2};
    return ttl - std::chrono::ceil<microseconds>(elapsed) - drift;
}

/// Returns the end of the validity of a lease with this ttl whose command was sent at `sent_at`. It is a time and not a
/// duration, for the process may be stopped between any two lines.
constexpr validity_time end_of_validity(milliseconds ttl, validity_time sent_at) {
    return sent_at + validity(ttl, std::chrono::nanoseconds{0});
}

// Times in texts that another writer made: a node that is not what it should be may send any number.

/// The longest time that is calculated with, far above every ttl and max_hold.
inline constexpr milliseconds foreign_time_max = std::chrono::years{100};

/// Returns a time that a node reports, at most foreign_time_max; -1 ms for every negative number, which means that a
/// key has no ttl.
constexpr milliseconds limit_foreign_time(std::int64_t ms) {
    return milliseconds{std::clamp<std::int64_t>(ms, -1, foreign_time_max.count())};
}

/// Returns a time given as milliseconds since 1970; empty before 1970 and after 2261, which wall_time can't represent.
constexpr std::optional<wall_time> to_wall_time(std::int64_t ms) {
    constexpr auto last = std::chrono::floor<milliseconds>(wall_time::duration::max());
    if (ms < 0 || milliseconds{ms} > last) return std::nullopt;
    return wall_time{milliseconds{ms}};
}

/// The largest value of a lease key; a longer one is another writer's (redis/lease.lua).
inline constexpr std::size_t lease_bytes_max = 16'384;
/// The most CLOSE marks of a lease (redis/lease.lua).
inline constexpr std::size_t close_marks_max = 64;
/// The most live ids, and the most tombstones, that are read of a lease. A node adds holds up to 64 of each; what was
/// merged of several nodes may have more. With so many a lease is still smaller than lease_bytes_max.
inline constexpr std::size_t hold_ids_max = 256;

/// The holds of one lease, merged from the replies of several nodes. The two ids of a hold (hold_id) count as one.
///
/// A hold that was granted and not released is live on some node of every majority; a hold whose release was answered
/// has a tombstone on some node of every majority. So the replies of a majority contain every granted hold as a live id
/// without a tombstone; further such ids are holds whose HOLD or RELEASE is not yet answered.
class hold_view {
  public:
    /// Adds the holds that one node reports. `text` has three lines: live ids and tombstones, separated by commas, and
    /// the CLOSE marks. Anything that is no id and no mark is ignored, and what exceeds the limits of a lease.
    void add(std::string_view text);
    void add(const hold_view& other);
    /// Returns the holds in the form that add() takes: the live ids that have no tombstone, the tombstones, and the
    /// CLOSE marks.
    std::string text() const;

    /// Returns the number of live holds.
    std::size_t count() const;
    /// Returns whether some node has a tombstone of the hold. That of a tentative id, left by an undo, says nothing
    /// about the confirmed one.
    bool is_released(const hold_id& id) const;
    /// Returns the CLOSE marks of all nodes, with which a node refuses further holds: of each call that closed the
    /// lease the id of its hold, which is to be the last, and 16 digits of the call. Only that call removes its mark.
    const std::string& close_marks() const { return close_marks_; }

  private:
    void add_marks(std::string_view marks);

    std::vector<hold_id> live_, tombstones_;
    std::string close_marks_;
};

/// A lease as a node stores it. The first line is `nonce stamp renewals ttl_ms held_ms granted_ms keys`; then follow,
/// with a line each, the principal, the owner, the names of the resources (append_names; empty if there is only one,
/// which is not shared), the ids of the live holds, the tombstones, and the CLOSE marks (the id of the hold and 16
/// digits of the call, each; empty: not closed). After that come any number of wake marks, each after a byte 1: the
/// managers to notify when the lease ends. `keys` has the digests of idempotency keys, each as `digest:hold id` with
/// the tentative id, separated by commas; or it is
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
    std::vector<resource_name> resources;  ///< Without these and `shared`: only the resource in the key's name.
    std::vector<resource_name> shared;

    /// Returns a lease of nobody, which nobody releases and which lasts for `ttl`, under a nonce of its own
    /// (docs/protocol.md, FAST READMISSION 5).
    static lease_record make_block(random_source& random, milliseconds ttl);
    /// A block was granted at no time: its granted_at is 0. A lease that was granted in the first millisecond of 1970
    /// is taken for one, which excludes others as well.
    bool is_block() const { return granted_at == wall_time{}; }
    /// Returns whether another node has the same lease, with this token or another one. A faulty node may report the
    /// nonce of a lease as that of another holder or of other resources.
    bool is_same_lease(const lease_record& other) const;
    /// Adds the holds and keys that another node has of the same lease.
    void merge(const lease_record& other);
    /// Returns the value of a lease key. Of the idempotency keys it has the newest ones that a node keeps; it has no
    /// wake marks, and no hold that was released.
    std::string format() const;
    /// Parses the value of a lease key; empty for a text of another form.
    static std::optional<lease_record> parse(std::string_view text);
};

/// Appends the names of a lease, separated by resource_name::separator; the shared ones follow an empty name.
void append_names(std::string& out, const std::vector<resource_name>& resources,
                  const std::vector<resource_name>& shared);
/// Parses such names. Returns false if one is none.
bool parse_names(std::string_view text, std::vector<resource_name>& resources, std::vector<resource_name>& shared);

/// What the tail of a lease has in addition to its claims.
struct lease_state {
    milliseconds ttl{};
    std::uint64_t renewals = 0;
    milliseconds held{};
    std::string_view key;            ///< The digest of the hold's idempotency key; empty: none.
    std::string_view wake_mark;      ///< The manager to notify when another one ends the lease; empty: none.
    std::string_view close_marks{};  ///< The lease refuses further holds; empty: it does not.
};

/// Returns whether a lease has exactly the resources of a request, in the same modes.
bool has_resources_of(const lease_record& lease, const acquire_request& request);

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
