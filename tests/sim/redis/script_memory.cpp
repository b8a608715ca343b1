#include <sim/redis/script_memory.hpp>

#include <algorithm>
#include <cstring>

namespace sim {
namespace {

/// Far more than a script and what ran since the last restore allocate; untouched pages cost nothing.
constexpr std::size_t capacity = std::size_t{256} << 20;
/// Less would copy the saved part, of 0.6 MB, too often; more would leave the processor's caches.
constexpr std::size_t garbage_max = std::size_t{4} << 20;

constexpr std::size_t aligned(std::size_t size) {
    return (size + 15) & ~std::size_t{15};
}

}  // namespace

script_memory::script_memory() : blocks_(new std::byte[capacity]) {}

void* script_memory::allocate(void* memory, void* old, std::size_t old_size, std::size_t new_size) {
    auto& self = *static_cast<script_memory*>(memory);
    auto* const block = static_cast<std::byte*>(old);
    const bool is_last = block && block + aligned(old_size) == self.begin() + self.used_;
    if (is_last) self.used_ -= aligned(old_size);
    if (new_size == 0) return nullptr;
    if (block && !is_last && new_size <= old_size) return block;
    if (aligned(new_size) > capacity - self.used_) {
        if (is_last) self.used_ += aligned(old_size);
        return nullptr;
    }
    std::byte* const fresh = self.begin() + self.used_;
    self.used_ += aligned(new_size);
    if (block && !is_last) std::memcpy(fresh, block, old_size);
    return fresh;
}

void script_memory::save() {
    saved_.assign(begin(), begin() + used_);
}

void script_memory::restore_if_large() {
    if (used_ > saved_.size() + garbage_max) restore();
}

void script_memory::restore() {
    std::copy(saved_.begin(), saved_.end(), begin());
    used_ = saved_.size();
}

}  // namespace sim
