#include <gateway/audit/history_horizon.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::audit {

std::optional<std::int64_t> history_horizon::advance(history_tail seen) {
    if (noted_) {
        const bool one_is_left = std::ranges::any_of(noted_->writers, [&seen](const auto& writer) {
            return std::ranges::find(seen.writers, writer) != seen.writers.end();
        });
        if (one_is_left) return settled_;
        settled_ = noted_->last_id;
        noted_.reset();
    }
    if (seen.writers.empty()) {
        settled_ = seen.last_id;
    } else {
        noted_ = std::move(seen);
    }
    return settled_;
}

}  // namespace fencegate::audit
