#include <proto/majority_round.hpp>

#include <algorithm>
#include <functional>

namespace lockcore {

node_set majority_round::start() const {
    node_set all;
    for (std::size_t n = 0; n < nodes_; ++n)
        all.set(n);
    return all;
}

majority_round::verdict majority_round::answered(node_index node, const node_reply& reply) {
    const std::size_t n = value_of(node);
    // An answer that was only late replaces "timeout"; it counts if the round is still open.
    if (seen_[n] && answers_[n] == reply_status::timeout && silent_ > 0) --silent_;
    seen_.set(n);
    answers_[n] = reply.status;
    switch (reply.status) {
        case reply_status::ok:
            remaining_[n] = reply.remaining;
            holds_[n] = reply.count;
            told_ = std::max(told_, reply.told);
            ttl_ = std::max(ttl_, reply.ttl);
            held_ = std::max(held_, reply.held);
            value_ = std::max(value_, reply.value);
            ++yes_;
            break;
        case reply_status::lost:
            ++lost_;
            break;
        case reply_status::exhausted:
            ++exhausted_;
            break;
        default:
            ++silent_;
    }
    if (verdict_ != verdict::pending) return verdict_;
    const std::size_t open = nodes_ - yes_ - lost_ - exhausted_ - silent_;
    if (yes_ >= quorum_) {
        verdict_ = verdict::yes;
    } else if (yes_ + open < quorum_) {
        // No majority can say yes any more. It is lost only if that does not hang on nodes that did not answer.
        if (yes_ + exhausted_ >= quorum_) {
            verdict_ = verdict::exhausted;
        } else if (lost_ >= quorum_ || (silent_ == 0 && open == 0)) {
            verdict_ = verdict::lost;
        } else if (open == 0) {
            verdict_ = verdict::no_quorum;
        }
    }
    return verdict_;
}

milliseconds majority_round::remaining() const {
    if (yes_ < quorum_) return milliseconds{0};
    std::array<milliseconds, nodes_max> sorted = remaining_;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(nodes_), std::greater<>());
    return sorted[quorum_ - 1];
}

bool majority_round::gone() const {
    std::size_t none = 0;
    for (std::size_t n = 0; n < nodes_; ++n) {
        if (answers_[n] == reply_status::lost || (answers_[n] == reply_status::ok && holds_[n] == 0)) ++none;
    }
    return none >= quorum_;
}

bool majority_round::holds_settled() const {
    const auto some = static_cast<std::size_t>(
        std::count_if(holds_.begin(), holds_.end(), [](std::uint32_t holds) { return holds > 0; }));
    return some >= quorum_ || some + (nodes_ - seen_.count()) < quorum_;
}

std::uint32_t majority_round::holds() const {
    std::array<std::uint32_t, nodes_max> sorted = holds_;
    std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(nodes_), std::greater<>());
    return sorted[quorum_ - 1];
}

}  // namespace lockcore
