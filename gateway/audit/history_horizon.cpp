#include <gateway/audit/history_horizon.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::audit {

std::optional<std::int64_t> history_horizon::advance(history_tail seen) {
    if (pending_) {
        const bool writer_remains = std::ranges::any_of(pending_->writers, [&seen](const auto& writer) {
            return std::ranges::find(seen.writers, writer) != seen.writers.end();
        });
        if (writer_remains) return settled_;
        settled_ = pending_->last_id;
        pending_.reset();
    }
    if (seen.writers.empty()) {
        settled_ = seen.last_id;
    } else {
        pending_ = std::move(seen);
    }
    return settled_;
}

}  // namespace fencegate::audit
