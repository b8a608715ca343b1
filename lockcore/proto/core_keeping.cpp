// Leases that are renewed for their holders.
#include <proto/core.hpp>

#include <proto/failures.hpp>

#include <algorithm>

namespace lockcore {

void core::on(input::keep what) {
    keep_call& k = *keeping_.emplace(what.call, std::make_unique<keep_call>()).first->second;
    k.call = what.call;
    k.kept = std::move(what.kept);
    k.trace_id = std::move(what.trace_id);
    const nonce& attempt = k.kept.current.claims.attempt_id;
    keepers_.emplace(std::string(attempt.str()), &k);
    k.woken = std::ranges::find(ended_leases_, attempt) != ended_leases_.end();
    // A lease whose validity has been used up for the most part is renewed earlier.
    const milliseconds third = k.kept.current.ttl / 3;
    const milliseconds left = remaining_until(k.kept.current.valid_until);
    sleep(k, std::clamp(left - third, milliseconds{0}, third));
}

void core::sleep(keep_call& k, milliseconds delay) {
    // Timer and validity use different clocks, so the validity is tested after each wait.
    const validity_time end = std::min(k.kept.current.valid_until, k.kept.hold_until);
    k.until = ctx_.now.monotonic + std::min<std::chrono::nanoseconds>(delay, end - ctx_.now.validity);
    k.sleeping = true;
    ctx_.timers.cancel(k.timer);
    k.timer = ctx_.timers.set(k.until, [this, &k] { resume(k); });
    if (k.woken || k.cancelled) resume(k);
}

void core::resume(keep_call& k) {
    if (!k.sleeping) return;
    if (k.cancelled)
        return finish(k, make_failure(errc::cancelled, "The caller cancelled the request; the lease is still live."));
    if (ctx_.now.validity >= k.kept.current.valid_until)
        return finish(k, keep_step::outcome::lost, "It expired: it could not be renewed in time.");
    if (ctx_.now.validity >= k.kept.hold_until)
        return finish(k, keep_step::outcome::exhausted, "It was held for as long as max_hold_ms allows.");
    k.sleeping = false;
    ctx_.timers.cancel(k.timer);
    const lease_claims& claims = k.kept.current.claims;
    if (std::exchange(k.woken, false)) {
        inspect(claims, [this, &k](const result<lease>& live, const majority_round&) {
            if (!live && live.error().code != errc::no_quorum)
                return finish(k, keep_step::outcome::lost, "It was revoked or released.");
            sleep(k, std::chrono::floor<milliseconds>(k.until - ctx_.now.monotonic));
        });
        return;
    }
    const milliseconds ttl = k.kept.current.ttl;
    renew(claims, ttl, k.trace_id, true, [this, &k, ttl](result<lease> renewed) {
        if (renewed) {
            const validity_time hold_until = k.kept.hold_until;
            k.kept = kept_lease(std::move(*renewed));
            k.kept.hold_until = hold_until;
            return finish(k, keep_step::outcome::renewed, {});
        }
        if (renewed.error().code == errc::no_quorum)
            return sleep(k, std::clamp(ttl / 10, milliseconds{20}, milliseconds{1'000}));
        const bool lost = renewed.error().code == errc::lease_lost;
        finish(k, lost ? keep_step::outcome::lost : keep_step::outcome::exhausted, renewed.error().detail);
    });
}

void core::finish(keep_call& k, keep_step::outcome outcome, std::string reason) {
    finish(k, keep_step{outcome, k.kept, std::move(reason)});
}

void core::finish(keep_call& k, result<keep_step> outcome) {
    ctx_.timers.cancel(k.timer);
    const auto [first, last] = keepers_.equal_range(std::string(k.kept.current.claims.attempt_id.str()));
    keepers_.erase(std::find_if(first, last, [&k](const auto& entry) { return entry.second == &k; }));
    answer(k.call, std::move(outcome));
    keeping_.erase(k.call);
}

void core::notify_keepers(const nonce& ended) {
    ended_leases_.push_back(ended);
    if (ended_leases_.size() > ended_leases_max) ended_leases_.pop_front();
    const auto [first, last] = keepers_.equal_range(std::string(ended.str()));
    for (auto keeper = first; keeper != last; ++keeper) {
        keeper->second->woken = true;
        ctx_.call_at_step_end([this, call = keeper->second->call] {
            if (const auto found = keeping_.find(call); found != keeping_.end()) resume(*found->second);
        });
    }
}

}  // namespace lockcore
