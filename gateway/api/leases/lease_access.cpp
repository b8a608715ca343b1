#include <gateway/api/leases/lease_access.hpp>

#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/audit/event_sink.hpp>

#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

namespace fencegate::api {

result<void> check_lease_use(const lockcore::lease_claims& claims, scope needed, const http::request& r) {
    const auto allowed = r.rights->require(needed, claims.resources);
    if (!allowed) return allowed.error();
    if (claims.holder.principal == r.principal || r.rights->require(scope::operate, claims.resources)) return {};
    return make_failure(errc::forbidden, "The lease belongs to another principal; using it needs the scope 'operate'.");
}

result<lockcore::lease_claims> open_lease(const lockcore::lock_manager& locks, std::string_view lease_id, scope needed,
                                          const http::request& r) {
    auto claims = locks.verify_lease_id(lease_id);
    if (!claims) return to_failure(claims.error());
    const auto allowed = check_lease_use(*claims, needed, r);
    if (!allowed) return allowed.error();
    return std::move(*claims);
}

result<void> check_event_capacity(const gateway_services& services, const std::string& principal) {
    if (!services.events.full(services.limiter.has_one_principal() ? std::string() : principal)) return {};
    return make_failure(
        errc::storage_unavailable,
        services.events.is_nearly_full()
            ? "No new leases: the buffer of lease events (audit.buffer_max) is nearly full while they wait for "
              "PostgreSQL."
            : "No new leases for this principal: its lease events that wait for PostgreSQL use three "
              "quarters of their buffer (audit.buffer_max).");
}

result<limits::held_leases::acquisition> admit_acquisition(const gateway_services& services,
                                                           const std::shared_ptr<limits::caller>& caller,
                                                           const boost::asio::ip::address& peer,
                                                           lockcore::acquire_request& request) {
    const auto capacity = check_event_capacity(services, caller ? caller->principal() : std::string());
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

actor make_actor(const lockcore::lease_claims& claims, const http::request& r) {
    actor initiator;
    initiator.principal = r.principal;
    initiator.owner = claims.holder.owner;
    initiator.trace_id = r.trace_id;
    return initiator;
}

}  // namespace fencegate::api
