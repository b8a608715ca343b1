#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace fencegate::metrics {

/// The label `resource_prefix`: a resource's name up to its first slash, never the whole name. Whatever callers invent,
/// there are at most `prefixes_max` of them; what comes then is "other".
///
/// Threads: safe.
class prefix_labels {
  public:
    static constexpr std::size_t prefixes_max = 50;

    /// "-" for a name without a slash.
    std::string of(std::string_view resource);

  private:
    std::mutex mutex_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace fencegate::metrics
