#include <gateway/api/leases/lease_lifecycle.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/limits/limiter.hpp>
#include <gateway/pg/database.hpp>

#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>
#include <vector>

namespace fencegate::api {

using boost::asio::awaitable;

namespace {

/// A place that several waits of one request have together. The waits may be on several threads.
class shared_place {
  public:
    template <class Admit>
    std::shared_ptr<void> take(const Admit& admit) {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<void> out = place_.lock();
        if (!out) place_ = out = admit();
        return out;
    }

  private:
    std::mutex mutex_;
    std::weak_ptr<void> place_;
};

}  // namespace

result<void> check_event_capacity(const audit::event_sink& events, const limits::limiter& limiter,
                                  const std::string& principal) {
    const std::string with_share = limiter.has_one_principal() ? std::string() : principal;
    if (!events.buffer().must_refuse_leases(with_share)) return {};
    return make_failure(
        errc::storage_unavailable,
        events.buffer().is_nearly_full()
            ? "No new leases: the buffer of lease events (audit.buffer_max) is nearly full while they wait for "
              "PostgreSQL."
            : "No new leases for this principal: its lease events that wait for PostgreSQL use three "
              "quarters of their buffer (audit.buffer_max).");
}

result<limits::held_leases::acquisition> admit_acquisition(const lease_services& services,
                                                           const std::shared_ptr<limits::caller>& caller,
                                                           const boost::asio::ip::address& peer,
                                                           lockcore::acquire_request& request, bool any_of) {
    const auto capacity =
        check_event_capacity(services.events, services.limiter, caller ? caller->principal() : std::string());
    if (!capacity) return capacity.error();
    if (!caller) return limits::held_leases::acquisition();
    request.admit_waiter = [caller, peer, streams = request.kept, &limiter = services.limiter,
                            shared = any_of ? std::make_shared<shared_place>() : nullptr]() -> std::shared_ptr<void> {
        const auto admit = [&] { return limiter.admit_long_request(caller, peer); };
        auto taken = std::make_shared<std::pair<limits::place, std::shared_ptr<void>>>();
        taken->first = limits::place(caller, limits::use::waiters);
        if (taken->first && !streams) taken->second = shared ? shared->take(admit) : admit();
        if (taken->first && (streams || taken->second)) return taken;
        limiter.count_refusal(limits::refusal::waiters);
        return nullptr;
    };
    return services.held_leases.admit(caller, any_of ? std::vector<lockcore::resource_name>() : request.resources,
                                      std::chrono::system_clock::now());
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

awaitable<void> release_abandoned_lease(lockcore::lock_manager& locks, lockcore::lease_claims claims,
                                        std::string origin) {
    const auto released = co_await locks.release(std::move(claims), std::move(origin));
    if (!released) spdlog::debug("an abandoned lease was not released and will expire: {}", released.error().detail);
}

awaitable<lockcore::result<lockcore::close_outcome>> gateway_seal_ports::close_to_new_holds(
    lockcore::lease_claims claims) {
    return locks_.close_to_new_holds(std::move(claims));
}

void gateway_seal_ports::reopen(lockcore::lease_claims claims, lockcore::close_outcome closed) {
    locks_.reopen(std::move(claims), closed);
}

awaitable<result<void>> gateway_seal_ports::raise_above(lockcore::lease_claims claims, actor initiator,
                                                        std::chrono::steady_clock::time_point until) {
    const auto raised = co_await database_.raise_fences(std::move(claims.resources), claims.token, std::move(initiator),
                                                        "seal", true, until);
    if (!raised) co_return raised.error();
    co_return result<void>{};
}

awaitable<result<lease_seal>> lease_seal::prepare(seal_ports& ports, lockcore::lease_claims claims,
                                                  bool may_have_other_holds) {
    lease_seal prepared(ports, std::move(claims));
    if (!may_have_other_holds) co_return prepared;
    const auto closing = co_await ports.close_to_new_holds(prepared.claims_);
    if (closing) {
        prepared.is_last_hold_ = closing->closed;
        if (closing->closed) prepared.closed_ = *closing;
    } else if (closing.error().code != lockcore::errc::lease_lost) {
        co_return to_failure(closing.error());
    }
    co_return prepared;
}

awaitable<result<void>> lease_seal::raise_fences(actor initiator, std::chrono::steady_clock::time_point until) {
    const auto raised = co_await ports_.raise_above(claims_, std::move(initiator), until);
    if (!raised) abandon(raised.error());
    co_return raised;
}

void lease_seal::abandon(const failure& cause) {
    if (closed_ && !cause.outcome_unknown) ports_.reopen(claims_, *closed_);
}

awaitable<bool> seal_after_release(seal_ports& ports, lockcore::lease_claims claims, actor initiator,
                                   std::chrono::steady_clock::time_point until) {
    const auto sealed = co_await ports.raise_above(claims, std::move(initiator), until);
    if (!sealed) {
        spdlog::warn("token {} of {} {} sealed after the release of its lease: {}", lockcore::value_of(claims.token),
                     claims.resources.front().str(), sealed.error().outcome_unknown ? "may not have been" : "was not",
                     sealed.error().detail);
    }
    co_return sealed.has_value();
}

}  // namespace fencegate::api
