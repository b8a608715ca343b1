#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <lockcore/result.hpp>

namespace lockcore {

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

    /// A hold with an idempotency key has two ids, which are one hold (docs/protocol.md, HOLDS): its first request sends and
    /// undoes the tentative one, an even number, and its callers get the confirmed one, the next number. Each function
    /// returns that id of the pair.
    hold_id tentative() const { return with_last_bit(false); }
    hold_id confirmed() const { return with_last_bit(true); }

    std::string_view str() const { return {text_.data(), text_.size()}; }
    friend bool operator==(const hold_id&, const hold_id&) = default;

  private:
    hold_id with_last_bit(bool set) const;
    std::array<char, size> text_;
};

}  // namespace lockcore
