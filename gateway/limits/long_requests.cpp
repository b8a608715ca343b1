#include <gateway/limits/long_requests.hpp>

#include <lockcore/invariant.hpp>

#include <algorithm>

namespace fencegate::limits {

address_key key_of(const boost::asio::ip::address& peer) {
    namespace ip = boost::asio::ip;
    if (peer.is_v4()) return ip::make_address_v6(ip::v4_mapped, peer.to_v4()).to_bytes();
    const ip::address_v6 v6 = peer.to_v6();
    address_key out = v6.to_bytes();
    if (!v6.is_v4_mapped()) std::fill(out.begin() + 8, out.end(), static_cast<unsigned char>(0));
    return out;
}

std::shared_ptr<void> long_requests::take_place(const boost::asio::ip::address& peer) {
    const address_key address = key_of(peer);
    {
        const std::lock_guard lock(mutex_);
        const auto found = by_address_.find(address);
        const std::size_t of_address = found == by_address_.end() ? 0 : found->second;
        if (count_ >= most_ || (most_of_address_ > 0 && of_address >= most_of_address_)) return nullptr;
        ++by_address_[address];
        ++count_;
    }
    return {this, [self = shared_from_this(), address](long_requests*) { self->return_place(address); }};
}

void long_requests::return_place(const address_key& address) {
    const std::lock_guard lock(mutex_);
    const auto of_address = by_address_.find(address);
    LOCKCORE_INVARIANT(of_address != by_address_.end() && count_ > 0);
    if (--of_address->second == 0) by_address_.erase(of_address);
    --count_;
}

}  // namespace fencegate::limits
