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

milliseconds wait_queue::refused(milliseconds remaining, std::uint64_t chance) {
    const milliseconds doubled = look_first * (std::int64_t{1} << std::min(refusals_, 10U));
    ++refusals_;
    told_by_.reset();
    const milliseconds most = std::min(doubled, look_again);
    const auto half = most / 2;
    const milliseconds jittered =
        half +
        milliseconds{static_cast<std::int64_t>(chance % static_cast<std::uint64_t>(most.count() - half.count() + 1))};
    if (remaining <= milliseconds{0} || remaining > look_again) return jittered;
    // The holder's time may be over first; a little spread, for others wait for that moment too.
    return std::min(jittered, remaining + milliseconds{1 + static_cast<std::int64_t>(chance % 4)});
}

milliseconds wait_queue::told(node_index node, const nonce& ended) {
    if (!(ended == ended_)) {
        ended_ = ended;
        told_by_.reset();
    }
    told_by_.set(value_of(node));
    refusals_ = 0;
    return told_by_.count() >= limits_.quorum ? milliseconds{0} : rest_of_majority;
}

bool wait_queue::takes_over() {
    if (waiting_.empty() || handed_over_ >= limits_.handoff_max) return false;
    ++handed_over_;
    return true;
}

milliseconds wait_queue::given_back(bool others_wait) {
    handed_over_ = 0;
    refusals_ = 0;
    return others_wait ? others_first : milliseconds{0};
}

}  // namespace lockcore
