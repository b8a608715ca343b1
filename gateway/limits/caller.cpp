#include <gateway/limits/caller.hpp>

#include <gateway/domain/principal_share.hpp>

#include <lockcore/invariant.hpp>

#include <algorithm>
#include <limits>

namespace fencegate::limits {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

}  // namespace

void caller::set_limits(const principal_limits& limits, const principal_shares& shares) {
    const auto set = [this](use kind, std::size_t most) {
        most_[static_cast<std::size_t>(kind)].store(most, std::memory_order_relaxed);
    };
    set(use::requests, shares.requests);
    set(use::long_requests, share_of(shares.requests));
    set(use::waiters, limits.waiters_max > 0 ? limits.waiters_max : shares.waiters);
    set(use::streams, limits.streams_max > 0 ? limits.streams_max : unlimited);
    set(use::history_streams, limits.streams_max > 0 ? limits.streams_max : shares.history_streams);
    leases_max_.store(limits.leases_max, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    rate_ = make_bucket_size(limits.requests);
}

std::optional<caller::taken_request> caller::take_request(time_point now, request_class kind) {
    const std::lock_guard lock(mutex_);
    if (!rate_.is_limited()) return std::nullopt;
    return taken_request{rate_, buckets_[static_cast<std::size_t>(kind)].take(rate_, now)};
}

failure no_place_failure(use kind) {
    failure out = make_failure(errc::too_many_requests, "");
    switch (kind) {
        case use::requests:
            out.detail =
                "Requests of this principal that have no answer yet use its share of the gateway's connections.";
            break;
        case use::waiters:
            out.code = errc::too_many_waiters;
            out.detail = "As many calls of this principal wait for a lease as its limit or its share allows.";
            break;
        case use::streams:
            out.detail = "As many streams of this principal are open as limits.principal.streams_max allows.";
            break;
        case use::history_streams:
            out.detail = "As many streams of the history are open for this principal as its limit or its share allows.";
            break;
        case use::long_requests:
            out.detail =
                "Requests that wait or stream use their share of all connections, of those of this address, or of the "
                "requests of this principal.";
            break;
    }
    return out;
}

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
