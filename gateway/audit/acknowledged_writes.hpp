#pragma once

#include <boost/uuid/uuid.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::audit {

/// The writes that this gateway acknowledged last, so that it can name those that a failover of PostgreSQL has lost.
///
/// Threads: safe.
/// Limits:  those of the minute before the latest write, and 524,288 of them (13 MiB).
class acknowledged_writes {
  public:
    static constexpr std::chrono::minutes kept_for{1};
    static constexpr std::size_t kept_max = 524'288;
    using time_point = std::chrono::steady_clock::time_point;

    void add(const std::string& write_id, time_point now);
    /// Returns the write ids, the oldest first.
    std::vector<std::string> list() const;
    /// Forgets these write ids.
    void forget(const std::vector<std::string>& write_ids);

  private:
    struct entry {
        time_point at;
        boost::uuids::uuid write_id;
    };
    mutable std::mutex mutex_;
    std::deque<entry> entries_;
};

}  // namespace fencegate::audit
