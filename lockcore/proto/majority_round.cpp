#include <lockcore/invariant.hpp>
#include <proto/majority_round.hpp>

#include <algorithm>
#include <functional>

namespace lockcore {
namespace {

/// Returns whether the status says what the node did; any other status counts as silence.
constexpr bool is_answer(reply_status s) {
    return s == reply_status::ok || s == reply_status::lost || s == reply_status::exhausted ||
           s == reply_status::other_holds;
}

/// Returns the highest element, the second highest, and so on, by `rank`, which begins with 1.
template <class Number>
Number find_highest(std::array<Number, nodes_max> numbers, std::size_t rank) {
    std::sort(numbers.begin(), numbers.end(), std::greater<>());
    return numbers[rank - 1];
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
    // A late answer, or one to a repeated command, replaces silence; it changes the verdict only while that is pending.
    if (answered_nodes_[n]) {
        if (is_answer(answers_[n])) return verdict_;
        --silent_;
    }
    answered_nodes_.set(n);
    answers_[n] = reply.status;
    switch (reply.status) {
        case reply_status::ok:
            remaining_[n] = reply.remaining;
            holds_.add(reply.text);
            notified_waiters_ = std::max(notified_waiters_, reply.notified_waiters);
            ttl_ = std::max(ttl_, reply.ttl);
            held_[n] = reply.held;
            values_[n] = reply.value;
            ++yes_;
            break;
        case reply_status::lost:
            if (reply.has_stamp) {
                uncounted_stamps_[n] = reply.value;
                ++uncounted_;
            } else {
                ++lost_;
            }
            break;
        case reply_status::exhausted:
            limit_ = std::max(limit_, reply.value);
            ++exhausted_;
            break;
        case reply_status::other_holds:
            holds_.add(reply.text);
            ++other_holds_;
            break;
        default:
            ++silent_;
    }
    const std::size_t counted = yes_ + lost_ + uncounted_ + exhausted_ + other_holds_ + silent_;
    LOCKCORE_INVARIANT(counted == answered_nodes_.count() && counted <= nodes_);
    if (verdict_ != verdict::pending) return verdict_;
    const std::size_t open = nodes_ - counted;
    if (yes_ >= quorum_) {
        verdict_ = verdict::yes;
    } else if (yes_ + open < quorum_) {
        // No majority can say yes any more. The lease is lost only if nodes that did not answer cannot change that.
        if (yes_ + exhausted_ >= quorum_) {
            verdict_ = verdict::exhausted;
        } else if (yes_ + uncounted_ >= quorum_) {
            verdict_ = verdict::uncounted;
        } else if (lost_ >= quorum_) {
            verdict_ = verdict::lost;
        } else if (other_holds_ > 0 && yes_ + silent_ + open < quorum_) {
            verdict_ = verdict::other_holds;
        } else if (other_holds_ == 0 && silent_ == 0 && open == 0) {
            verdict_ = verdict::lost;
        } else if (open == 0) {
            verdict_ = verdict::no_quorum;
        }
    }
    return verdict_;
}

milliseconds majority_round::remaining() const {
    return yes_ < quorum_ ? milliseconds{0} : find_highest(remaining_, quorum_);
}

std::uint64_t majority_round::value() const {
    return find_highest(values_, std::min<std::size_t>(nodes_, 2));
}

milliseconds majority_round::held() const {
    return find_highest(held_, std::min<std::size_t>(nodes_, 2));
}

}  // namespace lockcore
