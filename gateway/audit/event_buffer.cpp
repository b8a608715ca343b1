#include <gateway/audit/event_buffer.hpp>

#include <algorithm>
#include <iterator>

namespace fencegate {

bool event_buffer::add(std::vector<history_item> items) {
    const std::lock_guard lock(mutex_);
    if (items_.size() + items.size() > cfg_.buffer_max) {
        dropped_.fetch_add(items.size(), std::memory_order_relaxed);
        return false;
    }
    std::move(items.begin(), items.end(), std::back_inserter(items_));
    size_.store(items_.size(), std::memory_order_relaxed);
    return true;
}

std::vector<history_item> event_buffer::front(std::size_t most) const {
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, items_.size()));
    return {items_.begin(), items_.begin() + count};
}

void event_buffer::remove_front(std::size_t count) {
    const std::lock_guard lock(mutex_);
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(std::min(count, items_.size())));
    size_.store(items_.size(), std::memory_order_relaxed);
}

void event_buffer::lose_front(std::size_t count) {
    remove_front(count);
    dropped_.fetch_add(count, std::memory_order_relaxed);
}

bool event_buffer::full() const {
    return cfg_.when_full == on_full::refuse && size() >= cfg_.buffer_max - cfg_.buffer_max / 8;
}

}  // namespace fencegate
