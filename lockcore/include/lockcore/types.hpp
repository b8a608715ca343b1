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
/// Measures spans only; every timeout and back-off uses it. Validity is measured by boot_clock.
using monotonic_time = std::chrono::steady_clock::time_point;
/// Wall clock; for people and for the history. No decision of the protocol uses it.
using wall_time = std::chrono::system_clock::time_point;

/// A number that grows with every grant of a resource, whatever crashes. 0 means "none".
/// Source: docs/protocol.md. Stays below 2^53, so that every JSON reader keeps it exactly.
enum class fencing_token : std::uint64_t {};

/// Raised in PostgreSQL before a node that may have forgotten is let in again; epoch × 2^32 is that node's new floor
/// for tokens.
enum class epoch : std::uint64_t {};

/// Position of a node in the configuration.
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

/// Most nodes a cluster may have.
inline constexpr std::size_t nodes_max = 9;
/// Most resources one lease may cover.
inline constexpr std::size_t resources_max = 16;
/// Token counters a node keeps at most: a resource counts in bucket hash(resource) mod this. Fixed when the cluster is
/// set up.
inline constexpr std::uint32_t buckets = 65'536;
/// Tokens of one epoch: base = epoch × this.
inline constexpr std::uint64_t tokens_per_epoch = std::uint64_t{1} << 32;

using node_set = std::bitset<nodes_max>;

/// The smallest number of nodes of which any two sets share one.
constexpr std::size_t majority_of(std::size_t nodes) {
    return nodes / 2 + 1;
}

/// The name of a thing protected: 1 to 200 bytes of `A-Z a-z 0-9 . _ : @ / -`, no empty segment between slashes.
class resource_name {
  public:
    /// Errors: errc::invalid_argument; the failure's detail says which rule is broken.
    static result<resource_name> parse(std::string_view text);

    const std::string& str() const { return text_; }
    /// Stable across processes and versions (FNV-1a, 64 bit): shards and counters hang on it.
    std::uint64_t hash() const;
    /// The token counter in which this resource counts.
    std::uint32_t bucket() const { return static_cast<std::uint32_t>(hash() % buckets); }

    friend auto operator<=>(const resource_name&, const resource_name&) = default;

  private:
    explicit resource_name(std::string text) : text_(std::move(text)) {}
    std::string text_;
};

/// What tells one attempt to acquire from every other: 128 random bits, new for each attempt, as 32 hexadecimal digits.
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

/// One hold of a lease: 64 random bits, new for each, as 16 hexadecimal digits. Unique within its lease.
class hold_id {
  public:
    static constexpr std::size_t size = 16;
    hold_id() { text_.fill('0'); }
    /// Errors: errc::invalid_argument unless it is 16 lower-case hexadecimal digits.
    static result<hold_id> parse(std::string_view text);
    static hold_id from_bits(std::uint64_t bits);
    /// The first hold, which comes with the grant: the second half of its nonce.
    static hold_id of_grant(const nonce& attempt);

    std::string_view str() const { return {text_.data(), text_.size()}; }
    friend bool operator==(const hold_id&, const hold_id&) = default;

  private:
    std::array<char, size> text_;
};

}  // namespace lockcore
