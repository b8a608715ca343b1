#include <proto/wait_queue.hpp>

#include <algorithm>
#include <iterator>

namespace lockcore {

bool wait_queue::leave(ticket t) {
    const bool was_head = !waiting_.empty() && head() == t;
    waiting_.erase(t);
    if (was_head) refusals_ = 0;
    return was_head && !waiting_.empty();
}

std::size_t wait_queue::position(ticket t) const {
    return static_cast<std::size_t>(std::distance(waiting_.begin(), waiting_.find(t))) + 1;
}

milliseconds wait_queue::refused(milliseconds remaining, std::uint64_t random) {
    const milliseconds doubled = retry_delay_min * (std::int64_t{1} << std::min(refusals_, 10U));
    ++refusals_;
    reporting_nodes_.reset();
    const milliseconds longest = std::min(doubled, retry_delay_max);
    const auto half = longest / 2;
    const auto choices = static_cast<std::uint64_t>(longest.count() - half.count() + 1);
    const milliseconds jittered = half + milliseconds{static_cast<std::int64_t>(random % choices)};
    if (remaining <= milliseconds{0} || remaining > retry_delay_max) return jittered;
    // The holder's lease may expire first. A jitter of 1 to 4 ms separates the waiters of several managers.
    return std::min(jittered, remaining + milliseconds{1 + static_cast<std::int64_t>(random % 4)});
}

milliseconds wait_queue::lease_ended(node_index node, const nonce& ended) {
    if (!(ended == ended_lease_)) {
        ended_lease_ = ended;
        reporting_nodes_.reset();
    }
    reporting_nodes_.set(value_of(node));
    refusals_ = 0;
    return reporting_nodes_.count() >= limits_.quorum ? milliseconds{0} : majority_grace;
}

bool wait_queue::begin_handoff() {
    if (waiting_.empty() || handed_over_ >= limits_.handoff_max) return false;
    ++handed_over_;
    return true;
}

milliseconds wait_queue::lease_released(bool others_wait) {
    handed_over_ = 0;
    refusals_ = 0;
    return others_wait ? yield_time : milliseconds{0};
}

}  // namespace lockcore
