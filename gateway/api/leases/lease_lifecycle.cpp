#include <gateway/api/leases/lease_lifecycle.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/limits/held_leases.hpp>
#include <gateway/limits/limiter.hpp>
#include <gateway/pg/database.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
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
    return services.held_leases.admit(caller, request, any_of, std::chrono::system_clock::now());
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
    fences_to_raise fences{.resources = std::move(claims.resources), .token = claims.token, .seals = true};
    const auto raised = co_await database_.raise_fences(std::move(fences), std::move(initiator), "seal", until);
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
                     lockcore::first_resource(claims).str(),
                     sealed.error().outcome_unknown ? "may not have been" : "was not", sealed.error().detail);
    }
    co_return sealed.has_value();
}

namespace {

namespace asio = boost::asio;
using asio::awaitable;
using lockcore::acquire_request;
using std::chrono::milliseconds;

/// Returns whether another resource may be granted after this failure of one.
bool is_of_one_resource(const lockcore::failure& f) {
    return f.code == lockcore::errc::resource_locked || f.code == lockcore::errc::no_quorum;
}

/// Returns the smaller of two values of which zero is unknown.
template <class T>
T least_known(T a, T b) {
    return a == T{} || b == T{} ? std::max(a, b) : std::min(a, b);
}

/// Returns how much a refusal of one resource says about all: the most if another resource would be refused too.
int rank(const lockcore::failure& f) {
    if (!is_of_one_resource(f)) return 2;
    return f.code == lockcore::errc::resource_locked ? 1 : 0;
}

/// The refusal of all resources together: the first one of the highest rank. Of locked resources it has the shortest
/// times.
class joint_refusal {
  public:
    void add(lockcore::failure f) {
        using enum lockcore::errc;
        if (!refusal_ || rank(f) > rank(*refusal_)) {
            refusal_ = std::move(f);
        } else if (f.code == resource_locked && refusal_->code == resource_locked) {
            refusal_->remaining = least_known(refusal_->remaining, f.remaining);
            refusal_->queue_position = least_known(refusal_->queue_position, f.queue_position);
        }
        if (refusal_->code == resource_locked)
            refusal_->detail = "Other leases hold all of the resources, or others wait for them.";
    }
    /// Returns whether it is no refusal of one resource, so that the others need not be asked.
    bool is_final() const { return refusal_ && !is_of_one_resource(*refusal_); }
    /// A call that was withdrawn before it began has no refusal.
    lockcore::failure take() && {
        if (refusal_) return std::move(*refusal_);
        return lockcore::make_failure(lockcore::errc::cancelled, "The caller cancelled the request.");
    }

  private:
    std::optional<lockcore::failure> refusal_;
};

/// Calls of lock_manager::acquire of which the first that is granted wins. All of it runs on one thread.
struct parallel_calls {
    parallel_calls(const asio::any_io_executor& executor, std::size_t count)
        : changed(executor, asio::steady_timer::time_point::max()), signals(count), running(count) {}

    bool is_decided() const { return granted || thrown || refusal.is_final(); }
    void withdraw() {
        if (std::exchange(withdrawn, true)) return;
        for (auto& signal : signals)
            signal.emit(asio::cancellation_type::terminal);
    }

    asio::steady_timer changed;  ///< Is cancelled when a call has ended.
    std::vector<asio::cancellation_signal> signals;
    std::size_t running;
    bool withdrawn = false;
    std::optional<lockcore::lease> granted;
    std::exception_ptr thrown;
    joint_refusal refusal;
};

awaitable<void> run_call(lockcore::lock_manager& locks, acquire_request request,
                         std::shared_ptr<parallel_calls> calls) {
    co_await asio::this_coro::throw_if_cancelled(false);
    if (calls->withdrawn || calls->is_decided()) co_return;
    std::string origin = request.origin;
    auto outcome = co_await locks.acquire(std::move(request));
    if (!outcome) {
        if (!calls->granted) calls->refusal.add(outcome.error());
    } else if (!calls->granted) {
        calls->granted = std::move(*outcome);
    } else {
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
        calls->changed.cancel();  // the other calls are withdrawn meanwhile
        co_await release_abandoned_lease(locks, std::move(outcome->claims), std::move(origin));
    }
}

/// Makes the calls at once. Returns when each has ended, so that none of them outlives the request.
awaitable<lockcore::result<lockcore::lease>> acquire_first(lockcore::lock_manager& locks,
                                                           std::vector<acquire_request> requests) {
    const auto executor = co_await asio::this_coro::executor;
    const auto calls = std::make_shared<parallel_calls>(executor, requests.size());
    const std::string origin = requests.front().origin;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        // The handler owns the signal for as long as the coroutine may use its slot.
        auto ended = [calls](std::exception_ptr error) {
            if (error) calls->thrown = error;
            --calls->running;
            calls->changed.cancel();
        };
        asio::co_spawn(executor, run_call(locks, std::move(requests[i]), calls),
                       asio::bind_cancellation_slot(calls->signals[i].slot(), std::move(ended)));
    }
    while (true) {
        const auto state = co_await asio::this_coro::cancellation_state;
        if (calls->is_decided() || state.cancelled() != asio::cancellation_type::none) calls->withdraw();
        if (calls->running == 0) break;
        boost::system::error_code ignored;
        co_await calls->changed.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    if (calls->thrown) {
        if (calls->granted) co_await release_abandoned_lease(locks, std::move(calls->granted->claims), origin);
        std::rethrow_exception(calls->thrown);
    }
    if (calls->granted) co_return std::move(*calls->granted);
    co_return std::move(calls->refusal).take();
}

std::vector<acquire_request> split(const acquire_request& wanted, milliseconds wait, acquire_request::answer accepts) {
    std::vector<acquire_request> out;
    for (const auto& resource : wanted.resources) {
        acquire_request& request = out.emplace_back(wanted);
        request.resources = {resource};
        request.wait = wait;
        request.accepts = accepts;
        request.record_refusal = false;
    }
    return out;
}

/// Begins at another resource with each call, so that callers do not contend for the first one; those that this
/// gateway knows to be held are last.
void order_by_chance(acquire_request& wanted, limits::held_leases& held) {
    static std::atomic<std::size_t> calls{0};
    auto& names = wanted.resources;
    const std::size_t first = calls.fetch_add(1, std::memory_order_relaxed) % names.size();
    std::ranges::rotate(names, names.begin() + static_cast<std::ptrdiff_t>(first));
    const auto now = std::chrono::system_clock::now();
    std::ranges::stable_partition(names, [&](const auto& name) { return !held.is_held(name, now); });
}

}  // namespace

awaitable<lockcore::result<lockcore::lease>> acquire_any(const lease_services& services, acquire_request wanted) {
    using answer = acquire_request::answer;
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto give_up_at = std::chrono::steady_clock::now() + wanted.wait;
    if (!wanted.idempotency_key.empty()) {
        auto known = co_await acquire_first(services.locks, split(wanted, milliseconds{0}, answer::repeated));
        if (known || !is_of_one_resource(known.error())) co_return known;
    }
    order_by_chance(wanted, services.held_leases);

    std::vector<acquire_request> tries = split(wanted, milliseconds{0}, answer::no_further_hold);
    tries.back().record_refusal = wanted.wait == milliseconds{0};
    joint_refusal refusal;
    for (acquire_request& one : tries) {
        auto outcome = co_await services.locks.acquire(std::move(one));
        if (outcome) co_return outcome;
        const bool nodes_answer = outcome.error().code != lockcore::errc::no_quorum;
        refusal.add(std::move(outcome.error()));
        const auto state = co_await asio::this_coro::cancellation_state;
        if (refusal.is_final() || state.cancelled() != asio::cancellation_type::none)
            co_return std::move(refusal).take();
        if (!nodes_answer) break;  // the others would wait for them too, one after the other
    }
    const auto left = std::chrono::floor<milliseconds>(give_up_at - std::chrono::steady_clock::now());
    if (left <= milliseconds{0}) co_return std::move(refusal).take();

    std::vector<acquire_request> waits = split(wanted, left, answer::no_further_hold);
    waits.front().record_refusal = true;
    co_return co_await acquire_first(services.locks, std::move(waits));
}

awaitable<lockcore::result<void>> cancel_any(lockcore::lock_manager& locks, acquire_request wanted) {
    lockcore::result<void> out;
    for (acquire_request& one : split(wanted, wanted.wait, acquire_request::answer::any)) {
        const auto cancelled = co_await locks.cancel(std::move(one));
        if (!cancelled && out) out = cancelled.error();
    }
    co_return out;
}

}  // namespace fencegate::api
