#include <gateway/api/leases/lease_access.hpp>

#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/pg/write/fence_executor.hpp>

#include <spdlog/spdlog.h>

namespace fencegate::api {

result<void> check_holder(const lockcore::lease_claims& claims, const http::request& r) {
    if (claims.by.principal == r.principal || r.scopes.has(scope::operate)) return {};
    return make_failure(errc::forbidden,
                        "The lease was given to another principal; to use it takes the scope 'operate'.");
}

result<lockcore::lease_claims> open_lease(services with, std::string_view lease_id, const http::request& r) {
    auto claims = with.locks.open(lease_id);
    if (!claims) return to_failure(claims.error());
    const auto allowed = check_holder(*claims, r);
    if (!allowed) return allowed.error();
    return std::move(*claims);
}

result<void> check_room_for_leases(services with) {
    if (!with.events.full()) return {};
    return make_failure(
        errc::storage_unavailable,
        "No new leases: the events of earlier ones wait for PostgreSQL, and there is no room for more.");
}

boost::asio::awaitable<void> give_back(services with, lockcore::lease_claims claims, std::string trace_id) {
    const auto released = co_await with.locks.release(std::move(claims), std::move(trace_id));
    if (!released) spdlog::debug("a lease without a caller was not released: {}", released.error().detail);
}

boost::asio::awaitable<result<seal_decision>> prepare_seal(services with, lockcore::lease_claims claims) {
    seal_decision out;
    out.seal = true;
    if (!claims.may_be_shared) co_return out;
    const auto closing = co_await with.locks.close_to_holds(std::move(claims));
    if (!closing && closing.error().code != lockcore::errc::lease_lost) co_return to_failure(closing.error());
    if (!closing) co_return out;
    out.seal = closing->closed;
    if (closing->closed) out.closed = *closing;
    co_return out;
}

void abandon_seal(services with, const lockcore::lease_claims& claims, const seal_decision& decision) {
    if (decision.closed) with.locks.reopen(claims, *decision.closed);
}

boost::asio::awaitable<result<void>> seal_token(services with, lockcore::lease_claims claims, actor by,
                                                std::chrono::steady_clock::time_point until) {
    const lockcore::fencing_token past{lockcore::value_of(claims.token) + 1};
    const auto raised = co_await with.fences.raise(std::move(claims.resources), past, std::move(by), "seal", until);
    if (!raised) co_return raised.error();
    co_return result<void>{};
}

actor acting(const lockcore::lease_claims& claims, const http::request& r) {
    actor by;
    by.principal = r.principal;
    by.owner = claims.by.owner;
    by.trace_id = r.trace_id;
    return by;
}

}  // namespace fencegate::api
