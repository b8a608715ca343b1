#include <gateway/audit/event_buffer.hpp>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace fencegate::audit {
namespace {

/// Returns the member of the history's detail that holds the event's text.
const char* detail_member_of(lockcore::event_kind kind) {
    switch (kind) {
        case lockcore::event_kind::node_quarantined:
        case lockcore::event_kind::node_readmitted:
        case lockcore::event_kind::epoch_raised:
            return "node";
        default:
            return "reason";
    }
}

std::string detail_of(const lockcore::event& e) {
    const auto ttl = e.ttl.count();
    if (e.detail.empty()) return ttl > 0 ? "{\"ttl_ms\":" + std::to_string(ttl) + "}" : std::string();
    boost::json::object detail;
    detail[detail_member_of(e.kind)] = e.detail;
    if (ttl > 0) detail["ttl_ms"] = ttl;
    return boost::json::serialize(detail);
}

}  // namespace

std::vector<history_item> history_items(const lockcore::event& e) {
    history_item item;
    item.at = e.at;
    item.event = lockcore::to_string(e.kind);
    if (lockcore::value_of(e.token) != 0) item.fencing_token = lockcore::value_of(e.token);
    item.initiator.principal = e.actor.principal;
    item.initiator.owner = e.actor.owner;
    item.initiator.trace_id = e.trace_id;
    item.detail = detail_of(e);

    std::vector<history_item> out;
    out.reserve(std::max<std::size_t>(e.resources.size(), 1));
    for (std::size_t i = 1; i < e.resources.size(); ++i) {
        out.push_back(item);
        out.back().resource = e.resources[i - 1].str();
    }
    if (!e.resources.empty()) item.resource = e.resources.back().str();
    out.push_back(std::move(item));
    return out;
}

bool event_buffer::add(std::vector<history_item> items) {
    const std::lock_guard lock(mutex_);
    if (size_.load(std::memory_order_relaxed) + items.size() > cfg_.buffer_max) {
        dropped_.fetch_add(items.size(), std::memory_order_relaxed);
        return false;
    }
    for (const history_item& item : items) {
        if (!item.initiator.principal.empty()) by_principal_.add(item.initiator.principal);
    }
    std::move(items.begin(), items.end(), std::back_inserter(items_));
    size_.fetch_add(items.size(), std::memory_order_relaxed);
    return true;
}

bool event_buffer::add_low_priority(history_item item) {
    const std::lock_guard lock(mutex_);
    if (size_.load(std::memory_order_relaxed) >= cfg_.buffer_max / 16) return false;
    if (!item.initiator.principal.empty()) by_principal_.add(item.initiator.principal);
    items_.push_back(std::move(item));
    size_.fetch_add(1, std::memory_order_relaxed);
    return true;
}

history_batch event_buffer::take(std::size_t count_max) {
    history_batch out;
    out.stream = stream_;
    const std::lock_guard lock(mutex_);
    const auto last = items_.begin() + static_cast<std::ptrdiff_t>(std::min(count_max, items_.size()));
    out.first_sequence = next_sequence_;
    out.items.assign(std::make_move_iterator(items_.begin()), std::make_move_iterator(last));
    items_.erase(items_.begin(), last);
    for (const history_item& item : out.items) {
        if (!item.initiator.principal.empty()) by_principal_.remove(item.initiator.principal);
    }
    next_sequence_ += out.items.size();
    return out;
}

void event_buffer::mark_lost(std::size_t count) {
    mark_written(count);
    dropped_.fetch_add(count, std::memory_order_relaxed);
}

bool event_buffer::is_nearly_full() const {
    return size() >= cfg_.buffer_max - cfg_.buffer_max / 8;
}

std::size_t event_buffer::share_max() const {
    return share_of(cfg_.buffer_max - cfg_.buffer_max / 8);
}

bool event_buffer::full(const std::string& principal) const {
    if (cfg_.when_full != on_full::refuse) return false;
    if (is_nearly_full()) return true;
    if (principal.empty() || size() < share_max()) return false;
    const std::lock_guard lock(mutex_);
    return by_principal_.used_by(principal) >= share_max();
}

}  // namespace fencegate::audit
