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
/// A token that no grant can have had yet is the sign of a faulty node; such a copy may be of any lease.
///
/// Limits:  bytes_max of names and values, counted once for the copies that different sources have of one lease; as many
///          different leases under one name as leases_max. Copies above that are not taken.
/// Threads: not safe.
class lease_merge {
  public:
    static constexpr std::size_t bytes_max = std::size_t{64} << 20U;
    /// While the nodes are read, one name may have several leases in turn.
    static constexpr std::size_t leases_max = 64;

    /// `nodes`: of the cluster. `sources`: how many of them are read. `longest`: the ttl that is written for a key
    /// without a ttl. `highest`: the highest epoch of a token that may have been granted.
    lease_merge(random_source& random, std::size_t nodes, std::size_t sources, milliseconds longest, epoch highest)
        : random_(random),
          quorum_(majority_of(nodes)),
          not_read_(nodes - sources),
          longest_(longest),
          highest_(highest) {}

    /// Adds what a source has under a key. Returns false if a limit is reached.
    bool add(std::size_t source, const lease_copy& copy);
    /// Returns merged leases, at most this many, and forgets them; none: there are no more. Nothing may be added after
    /// that.
    std::vector<lease_copy> take(std::size_t at_most);

  private:
    /// The copies of one lease, merged; or the copies that may be of any lease: blocks, and values that are no lease.
    struct copies {
        std::optional<lease_record> lease;  ///< Empty: any lease.
        node_set sources;
        milliseconds remaining{};  ///< The longest.
    };
    /// Returns the key that the node gets, without its name, and may change `found`; empty: none, because no lease under this
    /// name can be valid, or its holds are released.
    std::optional<lease_copy> choose(std::vector<copies>& found) const;

    random_source& random_;
    std::size_t quorum_, not_read_;
    milliseconds longest_;
    epoch highest_;
    std::size_t bytes_ = 0;
    std::unordered_map<std::string, std::vector<copies>> leases_;  ///< By resource.
};

}  // namespace lockcore
