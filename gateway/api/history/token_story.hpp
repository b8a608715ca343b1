#pragma once

#include <gateway/domain/history_item.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

/// What the history says of one token of a resource: who held it, from when to when, how often it was renewed, why it
/// ended, what it wrote and what was refused.
class token_story {
  public:
    /// Events that are shown, the oldest; more are counted.
    static constexpr std::size_t shown_max = 1'000;

    /// Its rows, oldest first.
    void add(history_item item);
    bool empty() const { return shown_.empty(); }

    /// `live`: a majority holds it now. `whole`: no row was left out.
    std::string render(std::string_view resource, std::uint64_t token, bool live, bool whole) const;

  private:
    std::string_view end(bool live, bool whole) const;

    std::vector<history_item> shown_;
    std::optional<history_item> granted_, ended_;
    std::optional<std::chrono::system_clock::time_point> runs_until_;
    std::int64_t events_ = 0, renewals_ = 0, applied_ = 0, rejected_ = 0, failed_ = 0;
};

}  // namespace fencegate::api
