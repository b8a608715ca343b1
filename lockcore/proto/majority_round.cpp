#include <proto/majority_round.hpp>

#include <algorithm>
#include <functional>

namespace lockcore {
namespace {

/// The node said what it did or did not do; anything else is silence.
constexpr bool is_answer(reply_status s) {
    return s == reply_status::ok || s == reply_status::lost || s == reply_status::exhausted || s == reply_status::kept;
}

}  // namespace

node_set majority_round::start() const {
    node_set all;
    for (std::size_t n = 0; n < nodes_; ++n)
        all.set(n);
    return all;
}

majority_round::verdict majority_round::answered(node_index node, const node_reply& reply) {
    const std::size_t n = value_of(node);
    // An answer that was late, or that another try brought, replaces silence; it counts if the round is still open.
    if (seen_[n]) {
        if (is_answer(answers_[n])) return verdict_;
        --silent_;
    }
    seen_.set(n);
    answers_[n] = reply.status;
    switch (reply.status) {
        case reply_status::ok:
            remaining_[n] = reply.remaining;
            holds_.add(reply.text);
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
            limit_ = std::max(limit_, reply.value);
            ++exhausted_;
            break;
        case reply_status::kept:
            holds_.add(reply.text);
            ++kept_;
            break;
        default:
            ++silent_;
    }
    if (verdict_ != verdict::pending) return verdict_;
    const std::size_t open = nodes_ - yes_ - lost_ - exhausted_ - kept_ - silent_;
    if (yes_ >= quorum_) {
        verdict_ = verdict::yes;
    } else if (yes_ + open < quorum_) {
        // No majority can say yes any more. It is lost only if that does not hang on nodes that did not answer.
        if (yes_ + exhausted_ >= quorum_) {
            verdict_ = verdict::exhausted;
        } else if (lost_ >= quorum_) {
            verdict_ = verdict::lost;
        } else if (kept_ > 0 && yes_ + silent_ + open < quorum_) {
            verdict_ = verdict::kept;
        } else if (kept_ == 0 && silent_ == 0 && open == 0) {
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

}  // namespace lockcore
