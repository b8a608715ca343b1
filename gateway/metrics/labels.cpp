#include <gateway/metrics/labels.hpp>

namespace fencegate::metrics {

std::string prefix_labels::label_of(std::string_view resource) {
    const auto slash = resource.find('/');
    if (slash == std::string_view::npos) return "-";
    const std::string_view prefix = resource.substr(0, slash);
    const std::lock_guard hold(mutex_);
    if (const auto found = known_.find(prefix); found != known_.end()) return *found;
    if (known_.size() >= prefixes_max) return "other";
    return *known_.emplace(prefix).first;
}

}  // namespace fencegate::metrics
