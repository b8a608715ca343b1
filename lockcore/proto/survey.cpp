#include <proto/survey.hpp>

#include <algorithm>
#include <functional>

namespace lockcore {

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
        } else {
            occupied_.set(value_of(node));
        }
    }
    const std::size_t open = nodes_ - received_;
    const std::size_t best = most_reported() ? most_reported()->remaining.size() : 0;
    if (best >= quorum_) {
        verdict_ = verdict::found;
    } else if (best + (nodes_ - answered_) < quorum_) {
        // No lease is on a majority, whatever the nodes without an answer hold.
        if (occupied_.count() + open < quorum_) {
            verdict_ = verdict::none;
        } else if (open == 0) {
            verdict_ = verdict::occupied;
        }
    } else if (open == 0) {
        verdict_ = verdict::no_quorum;
    }
    return verdict_;
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
