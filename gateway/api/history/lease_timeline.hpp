#pragma once

#include <gateway/domain/history_item.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// Summarizes the history of one token of a resource: who held the lease, from when to when, how often it was renewed,
/// why it ended, and how many writes were applied and refused.
class lease_timeline {
  public:
    /// Maximum number of events that are listed, the oldest ones; further ones are only counted.
    static constexpr std::size_t shown_max = 1'000;

    /// Adds an event of the token; the caller adds them oldest first.
    void add(history_item item);
    bool empty() const { return shown_.empty(); }

    /// Returns the JSON of GET /v1/resources/{resource}?fencing_token=N.
    ///
    /// In: `live`: a majority of nodes holds the lease now. `whole`: every event was added.
    std::string render(std::string_view resource, std::uint64_t token, bool live, bool whole) const;

  private:
    std::string_view describe_end(bool live, bool whole) const;

    std::vector<history_item> shown_;
    std::optional<history_item> granted_, renewed_, ended_;  ///< The first grant and renewal, the last end.
    std::optional<std::chrono::system_clock::time_point> runs_until_;
    std::int64_t events_ = 0, renewals_ = 0, applied_ = 0, rejected_ = 0, failed_ = 0;
};

}  // namespace fencegate::api
