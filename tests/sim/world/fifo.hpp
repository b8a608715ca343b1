#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace sim {

/// A queue that, unlike std::deque, allocates nothing while it is empty, because a run opens hundreds of connections.
template <class T>
class fifo {
  public:
    bool empty() const { return head_ == items_.size(); }
    std::size_t size() const { return items_.size() - head_; }
    T& front() { return items_[head_]; }
    const T& front() const { return items_[head_]; }
    void push(T item) { items_.push_back(std::move(item)); }
    T pop() {
        T item = std::move(items_[head_++]);
        if (empty()) clear();
        return item;
    }
    void clear() {
        items_.clear();
        head_ = 0;
    }
    auto begin() { return items_.begin() + static_cast<std::ptrdiff_t>(head_); }
    auto end() { return items_.end(); }

  private:
    std::vector<T> items_;
    std::size_t head_ = 0;
};

}  // namespace sim
