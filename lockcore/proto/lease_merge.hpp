#pragma once

#include <lockcore/random_source.hpp>
#include <proto/core_io.hpp>
#include <proto/lease_record.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockcore {

/// Merges the leases that several nodes have into those that a node must have before it votes again (docs/protocol.md,
/// FAST READMISSION 5). A merged lease has the stamp 0, so that it excludes others but does not count for its holder
/// until an UPGRADE.
///
/// Limits:  bytes_max of names and values, each key counted once; copies above that are not taken.
/// Threads: not safe.
class lease_merge {
  public:
    static constexpr std::size_t bytes_max = std::size_t{64} << 20U;

    /// `longest`: the ttl that is written for a key without a ttl.
    lease_merge(random_source& random, milliseconds longest) : random_(random), longest_(longest) {}

    /// Adds what one node has under a key. Returns false if the limit is reached.
    bool add(const lease_copy& copy);
    /// Returns merged leases, at most this many, and forgets them; none: there are no more. A lease whose holds are all
    /// released is left out. Nothing may be added after that.
    std::vector<lease_copy> take(std::size_t at_most);

  private:
    struct merged_lease {
        std::optional<lease_record> record;  ///< Empty: nodes have different leases, or another value.
        milliseconds remaining{};
    };
    std::string block() const;

    random_source& random_;
    milliseconds longest_;
    std::size_t bytes_ = 0;
    std::unordered_map<std::string, merged_lease> leases_;  ///< By resource.
};

}  // namespace lockcore
