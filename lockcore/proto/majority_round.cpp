#include <proto/majority_round.hpp>

#include <lockcore/invariant.hpp>

#include <algorithm>
#include <functional>

namespace lockcore {
namespace {

/// What LOOK answers of a resource that leases share: this, and their nonces.
constexpr std::string_view shared_reply = "shared ";

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

survey::verdict survey::answered(node_index node, const node_reply& reply) {
    if (verdict_ != verdict::pending || answers_[value_of(node)] != reply_status::pending) return verdict_;
    answers_[value_of(node)] = reply.status;
    ++received_;
    if (reply.status == reply_status::lost) ++answered_;
    if (reply.status == reply_status::ok) {
        ++answered_;
        if (auto record = lease_record::parse(reply.text)) {
            const auto same = [&](const reported_lease& s) {
                return s.record.is_same_lease(*record) && s.record.token == record->token;
            };
            auto found = std::find_if(leases_.begin(), leases_.end(), same);
            if (found == leases_.end()) {
                found = leases_.insert(found, {std::move(*record), {}});
            } else {
                found->record.merge(*record);
            }
            found->remaining.push_back(reply.remaining);
        } else if (reply.text.starts_with(shared_reply)) {
            add_sharing(node, std::string_view(reply.text).substr(shared_reply.size()));
        } else {
            occupied_.set(value_of(node));
        }
    }
    const std::size_t open = nodes_ - received_;
    const std::size_t best = most_reported() ? most_reported()->remaining.size() : 0;
    if (best >= quorum_) {
        verdict_ = verdict::found;
    } else if (best + (nodes_ - answered_) < quorum_) {
        // No lease is on a majority, whatever the nodes without an answer hold; of shared ones each node has others.
        if (!sharing_.empty() && open > 0) return verdict_;
        if (!sharing().empty()) {
            verdict_ = verdict::shared;
        } else if (occupied_.count() + open < quorum_) {
            verdict_ = verdict::none;
        } else if (open == 0) {
            verdict_ = verdict::occupied;
        }
    } else if (open == 0) {
        verdict_ = verdict::no_quorum;
    }
    return verdict_;
}

void survey::add_sharing(node_index node, std::string_view nonces) {
    for (std::size_t read = 0; nonces.size() >= nonce::size && read < sharing_max; ++read) {
        if (const auto attempt = nonce::parse(nonces.substr(0, nonce::size)))
            sharing_[std::string(attempt->str())].set(value_of(node));
        nonces.remove_prefix(std::min(nonce::size + 1, nonces.size()));
    }
}

std::vector<nonce> survey::sharing() const {
    std::vector<nonce> out;
    for (const auto& [attempt, nodes] : sharing_) {
        if (nodes.count() + (nodes_ - answered_) >= quorum_) out.push_back(*nonce::parse(attempt));
    }
    return out;
}

const survey::reported_lease* survey::most_reported() const {
    const auto fewer = [](const reported_lease& a, const reported_lease& b) {
        return a.remaining.size() < b.remaining.size();
    };
    const auto found = std::max_element(leases_.begin(), leases_.end(), fewer);
    return found == leases_.end() ? nullptr : &*found;
}

const lease_record* survey::lease() const {
    const reported_lease* found = most_reported();
    return found ? &found->record : nullptr;
}

std::vector<lease_record> survey::reported_leases() const {
    std::vector<const reported_lease*> ordered;
    for (const reported_lease& reported : leases_)
        ordered.push_back(&reported);
    std::ranges::stable_sort(ordered, std::ranges::greater{},
                             [](const reported_lease* reported) { return reported->remaining.size(); });
    std::vector<lease_record> out;
    for (const reported_lease* reported : ordered)
        out.push_back(reported->record);
    return out;
}

std::size_t survey::nodes_holding() const {
    const reported_lease* found = most_reported();
    return found ? found->remaining.size() : 0;
}

milliseconds survey::remaining() const {
    const reported_lease* found = most_reported();
    if (!found) return milliseconds{0};
    std::vector<milliseconds> sorted = found->remaining;
    if (std::any_of(sorted.begin(), sorted.end(), [](milliseconds m) { return m < milliseconds{0}; }))
        return milliseconds{-1};
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    return sorted[std::min(quorum_, sorted.size()) - 1];
}

}  // namespace lockcore
