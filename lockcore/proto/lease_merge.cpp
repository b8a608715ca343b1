#include <proto/lease_merge.hpp>

#include <algorithm>
#include <utility>

namespace lockcore {

bool lease_merge::add(const lease_copy& copy) {
    const milliseconds remaining = copy.remaining < milliseconds{0} ? longest_ : copy.remaining;
    auto record = lease_record::parse(copy.value);
    const auto [found, is_new] = leases_.try_emplace(copy.resource);
    if (is_new) bytes_ += copy.resource.size() + copy.value.size();
    if (is_new && bytes_ > bytes_max) {
        leases_.erase(found);
        return false;
    }
    merged_lease& merged = found->second;
    merged.remaining = std::max(merged.remaining, remaining);
    if (is_new) {
        merged.record = std::move(record);
    } else if (!record || !merged.record || !(merged.record->attempt_id == record->attempt_id)) {
        merged.record.reset();
    } else {
        merged.record->merge(*record);
        merged.record->token = std::max(merged.record->token, record->token);
        merged.record->renewals = std::max(merged.record->renewals, record->renewals);
        merged.record->held = std::max(merged.record->held, record->held);
        merged.record->ttl = std::max(merged.record->ttl, record->ttl);
    }
    return true;
}

std::vector<lease_copy> lease_merge::take(std::size_t at_most) {
    std::vector<lease_copy> out;
    while (out.size() < at_most && !leases_.empty()) {
        auto next = leases_.extract(leases_.begin());
        auto& [record, remaining] = next.mapped();
        if (record && record->holds.count() == 0) continue;
        if (record) record->stamp = 0;
        // A PTTL of 0 ms means less than one.
        out.push_back({std::move(next.key()), remaining + milliseconds{1}, record ? record->format() : block()});
    }
    return out;
}

std::string lease_merge::block() const {
    lease_record nobodys;
    nobodys.token = fencing_token{1};  // 0 is what a node answers of a value that is no lease
    nobodys.attempt_id = nonce::from_bits(random_.next(), random_.next());
    nobodys.holds.add(hold_id::of_grant(nobodys.attempt_id).str());
    return nobodys.format();
}

}  // namespace lockcore
