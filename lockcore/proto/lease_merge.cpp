#include <proto/lease_merge.hpp>

#include <proto/epochs.hpp>

#include <algorithm>
#include <utility>

namespace lockcore {

bool lease_merge::add(std::size_t source, const lease_copy& copy) {
    auto record = lease_record::parse(copy.value);
    // No lease is valid for longer than its ttl; a clock that was set back makes a key live longer (CLOCK SET BACK).
    const milliseconds longest = record ? std::min(record->ttl, longest_) : longest_;
    if (record && (record->is_block() || epoch_of(record->token) > highest_)) record.reset();
    std::vector<copies>& found = leases_[copy.resource];
    auto same = std::ranges::find_if(found, [&](const copies& c) {
        return c.lease.has_value() == record.has_value() && (!record || c.lease->is_same_lease(*record));
    });
    const bool is_new = same == found.end();
    if (is_new || same->sources.test(source)) bytes_ += copy.resource.size() + copy.value.size();
    if (bytes_ > bytes_max || (is_new && found.size() == leases_max)) {
        if (found.empty()) leases_.erase(copy.resource);
        return false;
    }
    if (is_new) {
        found.push_back({std::move(record), {}, {}});
        same = std::prev(found.end());
    } else if (record) {
        lease_record& merged = *same->lease;
        merged.merge(*record);
        merged.token = std::max(merged.token, record->token);
        merged.renewals = std::max(merged.renewals, record->renewals);
        merged.held = std::max(merged.held, record->held);
        merged.ttl = std::max(merged.ttl, record->ttl);
    }
    same->sources.set(source);
    const milliseconds remaining = copy.remaining < milliseconds{0} ? longest_ : std::min(copy.remaining, longest);
    same->remaining = std::max(same->remaining, remaining);
    return true;
}

std::optional<lease_copy> lease_merge::choose(std::vector<copies>& found) const {
    std::size_t unknown = not_read_;
    for (const copies& c : found)
        if (!c.lease) unknown += c.sources.count();
    copies* valid = nullptr;  // the only lease that may be valid
    // With a majority of unknown nodes a lease may be valid of which no copy was read.
    bool needs_block = unknown >= quorum_;
    for (copies& c : found) {
        if (!c.lease || c.sources.count() + unknown < quorum_) continue;
        needs_block = needs_block || valid != nullptr;
        valid = &c;
    }
    lease_copy out;
    // A PTTL of 0 ms means less than one.
    constexpr milliseconds rounding{1};
    if (needs_block) {
        out.remaining = std::ranges::max_element(found, {}, &copies::remaining)->remaining + rounding;
        out.value = lease_record::make_block(random_, out.remaining).format();
        return out;
    }
    if (!valid || valid->lease->holds.count() == 0) return std::nullopt;
    valid->lease->stamp = 0;
    out.remaining = valid->remaining + rounding;
    out.value = valid->lease->format();
    return out;
}

std::vector<lease_copy> lease_merge::take(std::size_t at_most) {
    std::vector<lease_copy> out;
    while (out.size() < at_most && !leases_.empty()) {
        auto next = leases_.extract(leases_.begin());
        auto chosen = choose(next.mapped());
        if (!chosen) continue;
        chosen->resource = std::move(next.key());
        out.push_back(std::move(*chosen));
    }
    return out;
}

}  // namespace lockcore
