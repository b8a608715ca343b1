// Leases that are renewed for their holders, or watched.
#include <proto/core.hpp>

#include <proto/failures.hpp>

#include <algorithm>

namespace lockcore {
namespace {

/// The pauses between two rounds of a watch: while too few nodes answer, and at least, at the end of the validity.
constexpr milliseconds watch_retry{500};
constexpr milliseconds watch_pause_min{50};

}  // namespace

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

void core::on(input::watch what) {
    keep_call& k = *keeping_.emplace(what.call, std::make_unique<keep_call>()).first->second;
    k.call = what.call;
    k.kept.current.claims = std::move(what.claims);
    k.watches = true;
    k.watched_until = ctx_.now.monotonic + what.longest;
    keepers_.emplace(std::string(k.kept.current.claims.attempt_id.str()), &k);
    look(k);
}

/// Inspects the lease of a watch.
void core::look(keep_call& k) {
    k.sleeping = false;
    inspect(
        k.kept.current.claims,
        [this, &k](result<lease> live, const majority_round&) {
            if (!live && live.error().code != errc::no_quorum) {
                const auto how = k.released ? watch_step::outcome::released : watch_step::outcome::lost;
                return finish(k, result<watch_step>(watch_step{how, {}}));
            }
            // The validity ends earlier than the nodes let the lease expire; others may renew it at any time.
            const milliseconds delay = live ? remaining_until(live->valid_until) : watch_retry;
            k.seen = std::move(live);
            k.until = std::min(k.watched_until, ctx_.now.monotonic + std::max(delay, watch_pause_min));
            k.sleeping = true;
            k.timer = ctx_.timers.set(k.until, [this, &k] { resume(k); });
            if (k.woken || k.cancelled) resume(k);
        },
        true);
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
    if (k.watches) {
        if (k.cancelled)
            return finish(k, result<watch_step>(make_failure(errc::cancelled, "The caller cancelled the request.")));
        ctx_.timers.cancel(k.timer);
        if (std::exchange(k.woken, false) || ctx_.now.monotonic < k.watched_until) return look(k);
        if (*k.seen) return finish(k, result<watch_step>(watch_step{watch_step::outcome::live, **k.seen}));
        return finish(k, result<watch_step>(k.seen->error()));
    }
    if (k.cancelled)
        return finish(k, result<keep_step>(make_failure(errc::cancelled,
                                                        "The caller cancelled the request; the lease is still live.")));
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
    finish(k, result<keep_step>(keep_step{outcome, k.kept, std::move(reason)}));
}

template <class Outcome>
void core::finish(keep_call& k, result<Outcome> outcome) {
    ctx_.timers.cancel(k.timer);
    const auto [first, last] = keepers_.equal_range(std::string(k.kept.current.claims.attempt_id.str()));
    keepers_.erase(std::find_if(first, last, [&k](const auto& entry) { return entry.second == &k; }));
    answer(k.call, std::move(outcome));
    keeping_.erase(k.call);
}

void core::notify_keepers(const nonce& ended, bool released) {
    ended_leases_.push_back(ended);
    if (ended_leases_.size() > ended_leases_max) ended_leases_.pop_front();
    const auto [first, last] = keepers_.equal_range(std::string(ended.str()));
    for (auto keeper = first; keeper != last; ++keeper)
        wake(*keeper->second, released);
}

void core::notify_keepers_of_hold(const lease_claims& released) {
    const auto [first, last] = keepers_.equal_range(std::string(released.attempt_id.str()));
    for (auto keeper = first; keeper != last; ++keeper) {
        if (keeper->second->kept.current.claims.hold == released.hold) wake(*keeper->second, true);
    }
}

void core::wake(keep_call& k, bool released) {
    k.woken = true;
    k.released = k.released || released;
    ctx_.call_at_step_end([this, call = k.call] {
        if (const auto found = keeping_.find(call); found != keeping_.end()) resume(*found->second);
    });
}

}  // namespace lockcore
