#include <gateway/api/leases/lease_admission.hpp>

#include <gateway/audit/event_sink.hpp>
#include <gateway/limits/limiter.hpp>

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

namespace fencegate::api {

result<void> check_event_capacity(const audit::event_sink& events, const limits::limiter& limiter,
                                  const std::string& principal) {
    if (!events.full(limiter.has_one_principal() ? std::string() : principal)) return {};
    return make_failure(
        errc::storage_unavailable,
        events.is_nearly_full()
            ? "No new leases: the buffer of lease events (audit.buffer_max) is nearly full while they wait for "
              "PostgreSQL."
            : "No new leases for this principal: its lease events that wait for PostgreSQL use three "
              "quarters of their buffer (audit.buffer_max).");
}

result<limits::held_leases::acquisition> admit_acquisition(const lease_services& services,
                                                           const std::shared_ptr<limits::caller>& caller,
                                                           const boost::asio::ip::address& peer,
                                                           lockcore::acquire_request& request) {
    const auto capacity =
        check_event_capacity(services.events, services.limiter, caller ? caller->principal() : std::string());
    if (!capacity) return capacity.error();
    if (!caller) return limits::held_leases::acquisition();
    request.admit_waiter = [caller, peer, streams = request.kept,
                            &limiter = services.limiter]() -> std::shared_ptr<void> {
        auto taken = std::make_shared<std::pair<limits::place, std::shared_ptr<void>>>();
        taken->first = limits::place(caller, limits::use::waiters);
        if (taken->first && !streams) taken->second = limiter.admit_long_request(caller, peer);
        if (taken->first && (streams || taken->second)) return taken;
        limiter.count_refusal(limits::refusal::waiters);
        return nullptr;
    };
    return services.held_leases.admit(caller, request.resources, std::chrono::system_clock::now());
}

result<std::shared_ptr<void>> admit_stream(limits::limiter& limiter, const http::request& r,
                                           std::initializer_list<limits::use> kinds) {
    if (!r.caller) return std::shared_ptr<void>();
    const auto refuse = [&](limits::use kind) {
        limiter.count_refusal(limits::refusal::streams);
        failure out = limits::no_place_failure(kind);
        out.retry_after = std::chrono::seconds(10);
        return out;
    };
    auto taken = std::make_shared<std::pair<std::vector<limits::place>, std::shared_ptr<void>>>();
    for (const limits::use kind : kinds) {
        taken->first.emplace_back(r.caller, kind);
        if (!taken->first.back()) return refuse(kind);
    }
    taken->second = limiter.admit_long_request(r.caller, r.peer);
    if (!taken->second) return refuse(limits::use::long_requests);
    return std::shared_ptr<void>(std::move(taken));
}

boost::asio::awaitable<void> release_abandoned_lease(lockcore::lock_manager& locks, lockcore::lease_claims claims,
                                                     std::string trace_id) {
    const auto released = co_await locks.release(std::move(claims), std::move(trace_id));
    if (!released) spdlog::debug("an abandoned lease was not released and will expire: {}", released.error().detail);
}

}  // namespace fencegate::api
