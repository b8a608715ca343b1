#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace fencegate::metrics {

/// Makes the label `resource_prefix`: a resource's name up to its first slash, never the whole name. There are at most
/// `prefixes_max` of them, whatever names callers use; further prefixes become "other".
///
/// Threads: safe.
class prefix_labels {
  public:
    static constexpr std::size_t prefixes_max = 50;

    /// Returns the label of a resource; "-" for a name without a slash.
    std::string label_of(std::string_view resource);

  private:
    std::mutex mutex_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace fencegate::metrics
