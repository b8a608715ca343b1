#include <gateway/api/leases/any_of.hpp>

#include <gateway/api/leases/lease_lifecycle.hpp>
#include <gateway/limits/held_leases.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::api {
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

/// The refusal of all resources together.
class joint_refusal {
  public:
    void add(lockcore::failure f) {
        if (!refusal_ || (is_of_one_resource(*refusal_) && !is_of_one_resource(f))) {
            refusal_ = std::move(f);
        } else if (is_of_one_resource(f) && f.code == lockcore::errc::resource_locked) {
            if (refusal_->code == lockcore::errc::no_quorum) {
                refusal_ = std::move(f);
            } else if (refusal_->code == f.code) {
                refusal_->remaining = least_known(refusal_->remaining, f.remaining);
                refusal_->queue_position = least_known(refusal_->queue_position, f.queue_position);
            }
        }
        if (refusal_->code == lockcore::errc::resource_locked)
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
