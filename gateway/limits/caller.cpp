#include <gateway/limits/caller.hpp>

#include <gateway/domain/principal_share.hpp>

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

}  // namespace fencegate::limits
