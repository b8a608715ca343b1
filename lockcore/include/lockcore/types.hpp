#pragma once

#include <boost/system/result.hpp>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockcore {

/// Reads CLOCK_BOOTTIME, which also advances while the machine is suspended; std::chrono::steady_clock does not.
/// The validity of a lease is measured with this clock, timers run on steady_clock.
struct boot_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<boot_clock>;
    static constexpr bool is_steady = true;
    static time_point now() noexcept;
};

/// The start or the end of a lease's validity.
using validity_time = boot_clock::time_point;

/// Identifies one of several clusters, each with its own nodes and register, that share the resources of an
/// installation by their prefixes. 0: an installation of one cluster.
using cell_id = std::uint16_t;

/// Returns the text `name`, marked as that of a cell: "CELL~name". A name of cell 0 has no mark.
std::string mark_cell(cell_id cell, std::string_view name);

/// A name with the cell to which it belongs.
struct cell_name {
    cell_id cell = 0;
    std::string_view name;
};

/// Splits a marked name. Out: empty if it begins with anything before "~" that mark_cell does not write.
std::optional<cell_name> split_cell(std::string_view marked);

/// Returns the sentences that refuse something of another cell; `subject`: what was sent, as "The lease_id".
std::string describe_other_cell(std::string_view subject, cell_id named, cell_id own);

/// Why an operation failed. There is a separate code only where a caller acts differently on it.
enum class errc {
    /// Caller error: an argument breaks a documented rule; nothing was sent.
    invalid_argument,
    /// Refused: a majority answered, and another lease holds the resource, for `remaining` at most; or a value that is
    /// no lease occupies its key, and `answers` says on which nodes.
    resource_locked,
    /// Unavailable: too few nodes answered. `answers` has the answer of each node.
    no_quorum,
    /// Refused: a majority no longer holds this lease.
    lease_lost,
    /// Refused: the lease was renewed as often, or held as long, as the configuration allows, or has 64 holds.
    renewals_exhausted,
    /// Caller error: the lease_id was not signed with this cluster's key, or was changed.
    lease_not_authentic,
    /// Caller error: the lease_id is of another cell (config::cell), which `cell` names.
    other_cell,
    /// Refused: as many callers wait as the configuration allows.
    too_many_waiters,
    /// The caller cancelled the call while it waited. What the call acquired is released; a lease that is kept stays.
    cancelled,
    /// Caller error: the idempotency key was used for another request, whose lease is still live.
    idempotency_mismatch,
    /// Refused: another listing or search is in progress; try again.
    busy,
    /// Unavailable: the manager grants no new leases.
    shutting_down,
};

/// The answer of one node, for errc::no_quorum.
struct node_answer {
    std::string name;
    std::string answer;    ///< "granted", "held", "lost", "not admitted", "timeout", "unreachable", …
    std::string detail{};  ///< Why the node does not vote; empty while it votes.
    /// For how long its quarantine can still last; 0: it is in none.
    std::chrono::milliseconds quarantine_left{0};
};

struct failure {
    errc code;
    std::string detail;  ///< One sentence for a person.
    /// resource_locked: the time until the holder's lease expires, at most.
    std::chrono::milliseconds remaining{0};
    /// resource_locked: the place in this manager's queue when the wait ended; 0: the call did not wait.
    std::size_t queue_position = 0;
    /// no_quorum; resource_locked where a value that is no lease occupies the key.
    std::vector<node_answer> answers;
    cell_id cell = 0;  ///< other_cell: the cell that the caller named.
};

/// Returns the name of a code, as logs show it.
const char* to_string(errc code);

template <class T>
using result = boost::system::result<T, failure>;

/// Boost.System calls this for .value() of a failed result (argument-dependent lookup). The caller must test first.
[[noreturn]] inline void throw_exception_from_error(const failure& f, const boost::source_location&) {
    throw std::logic_error(std::string("unchecked failure: ") + to_string(f.code) + ": " + f.detail);
}

inline failure make_failure(errc code, std::string detail) {
    failure f;
    f.code = code;
    f.detail = std::move(detail);
    return f;
}

inline failure make_no_quorum(std::string detail, std::vector<node_answer> answers) {
    failure f = make_failure(errc::no_quorum, std::move(detail));
    f.answers = std::move(answers);
    return f;
}

using std::chrono::milliseconds;
/// A time of the clock that measures timeouts and back-off. Validity is measured with boot_clock.
using monotonic_time = std::chrono::steady_clock::time_point;
/// A time of the wall clock, for people and for the history. No decision of the protocol depends on it.
using wall_time = std::chrono::system_clock::time_point;

/// A number that grows with every grant of a resource, whatever crashes in between. 0: none.
///
/// Limits: below 2^53, so that every JSON reader can represent it exactly.
/// Source: docs/protocol.md.
enum class fencing_token : std::uint64_t {};
/// The highest fencing token.
inline constexpr std::uint64_t fencing_token_max = (std::uint64_t{1} << 53U) - 1;

/// A number drawn from the register when a node is admitted; epoch × 2^32 is the lower bound of the node's tokens.
enum class epoch : std::uint64_t {};

/// The position of a node in the configuration.
enum class node_index : std::uint8_t {};

constexpr std::uint64_t value_of(fencing_token t) {
    return static_cast<std::uint64_t>(t);
}
constexpr std::uint64_t value_of(epoch e) {
    return static_cast<std::uint64_t>(e);
}
constexpr std::size_t value_of(node_index n) {
    return static_cast<std::size_t>(n);
}

/// The largest number of nodes in a cluster.
inline constexpr std::size_t nodes_max = 9;
/// The largest number of resources of one lease.
inline constexpr std::size_t resources_max = 64;
/// The most bytes that the names of the resources of one lease have together.
inline constexpr std::size_t names_bytes_max = 4'096;
/// The number of token counters on a node: a resource uses counter hash(resource) mod this. Never changes in the life
/// of a cluster.
inline constexpr std::uint32_t buckets = 65'536;
/// The number of tokens in one epoch: base = epoch × this.
inline constexpr std::uint64_t tokens_per_epoch = std::uint64_t{1} << 32;

using node_set = std::bitset<nodes_max>;

/// Returns the quorum: any two sets of so many nodes share a node.
constexpr std::size_t majority_of(std::size_t nodes) {
    return nodes / 2 + 1;
}

/// The name of a protected thing: 1 to 200 bytes of UTF-8 without control characters and without an empty segment (no
/// slash at its ends, no two in a row).
class resource_name {
  public:
    static constexpr std::size_t bytes_max = 200;
    /// Separates names where a text has several: no name has a control character.
    static constexpr char separator = '\t';

    /// Checks and copies a name.
    ///
    /// Errors: errc::invalid_argument; the failure's detail says which rule is broken.
    static result<resource_name> parse(std::string_view text);
    /// Returns whether a name can begin with this text, which may be empty.
    static bool is_prefix(std::string_view text);

    const std::string& str() const { return text_; }
    /// Returns FNV-1a (64 bit). It must not change between versions, for counters and shards are chosen by it.
    std::uint64_t hash() const;
    /// Returns the number of the token counter of this resource.
    std::uint32_t bucket() const { return static_cast<std::uint32_t>(hash() % buckets); }

    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the generated comparison for a pointer
    friend auto operator<=>(const resource_name&, const resource_name&) = default;

  private:
    explicit resource_name(std::string text) : text_(std::move(text)) {}
    std::string text_;
};

/// Returns how many bytes the names have together.
std::size_t names_bytes(const std::vector<resource_name>& names);

/// Identifies one attempt to acquire a lease: 127 random bits and a 0 as 32 hexadecimal digits, new for each attempt.
class nonce {
  public:
    static constexpr std::size_t size = 32;
    nonce() { text_.fill('0'); }
    /// Errors: errc::invalid_argument unless it is 32 lower-case hexadecimal digits.
    static result<nonce> parse(std::string_view text);
    static nonce from_bits(std::uint64_t high, std::uint64_t low);

    std::string_view str() const { return {text_.data(), text_.size()}; }
    friend bool operator==(const nonce&, const nonce&) = default;

  private:
    std::array<char, size> text_;
};

/// Identifies one hold within its lease: 63 random bits, and one that is 0 in a tentative id, as 16 hexadecimal digits.
class hold_id {
  public:
    static constexpr std::size_t size = 16;
    hold_id() { text_.fill('0'); }
    /// Errors: errc::invalid_argument unless it is 16 lower-case hexadecimal digits.
    static result<hold_id> parse(std::string_view text);
    static hold_id from_bits(std::uint64_t bits);
    /// Returns the id of the first hold, which the grant creates: the second half of the nonce.
    static hold_id of_grant(const nonce& attempt);

    /// A hold with an idempotency key has two ids, which are one hold (docs/protocol.md, HOLDS): its first request
    /// sends and undoes the tentative one, an even number, and its callers get the confirmed one, the next number. Each
    /// function returns that id of the pair.
    hold_id tentative() const { return with_last_bit(false); }
    hold_id confirmed() const { return with_last_bit(true); }

    std::string_view str() const { return {text_.data(), text_.size()}; }
    friend bool operator==(const hold_id&, const hold_id&) = default;

  private:
    hold_id with_last_bit(bool set) const;
    std::array<char, size> text_;
};

}  // namespace lockcore
