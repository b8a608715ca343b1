#include <proto/kept_leases.hpp>

#include <lockcore/types.hpp>

#include <algorithm>

namespace lockcore {
namespace {

/// The pauses between two rounds of a watch: while too few nodes answer, and at least, at the end of the validity.
constexpr milliseconds watch_retry{500};
constexpr milliseconds watch_pause_min{50};

}  // namespace

kept_leases::keep_call& kept_leases::add(call_id call, kept_lease kept) {
    keep_call& k = *calls_.emplace(call, std::make_unique<keep_call>()).first->second;
    k.call = call;
    k.kept = std::move(kept);
    by_lease_.emplace(std::string(k.kept.current.claims.attempt_id.str()), &k);
    return k;
}

void kept_leases::keep(input::keep what) {
    keep_call& k = add(what.call, std::move(what.kept));
    k.origin = std::move(what.origin);
    k.woken = std::ranges::find(ended_, k.kept.current.claims.attempt_id) != ended_.end();
    // A lease whose validity has been used up for the most part is renewed earlier.
    const milliseconds third = k.kept.current.ttl / 3;
    const milliseconds left = ctx_.remaining_until(k.kept.current.valid_until);
    sleep(k, std::clamp(left - third, milliseconds{0}, third));
}

void kept_leases::watch(input::watch what) {
    kept_lease watched;
    watched.current.claims = std::move(what.claims);
    keep_call& k = add(what.call, std::move(watched));
    k.watches = true;
    k.watched_until = ctx_.now.monotonic + what.longest;
    look(k);
}

void kept_leases::cancel(call_id call) {
    const auto found = calls_.find(call);
    if (found == calls_.end()) return;
    found->second->cancelled = true;
    resume(*found->second);
}

void kept_leases::sleep(keep_call& k, milliseconds delay) {
    // Timer and validity use different clocks, so the validity is tested after each wait.
    const validity_time end = std::min(k.kept.current.valid_until, k.kept.hold_until);
    sleep_until(k, ctx_.now.monotonic + std::min<std::chrono::nanoseconds>(delay, end - ctx_.now.validity));
}

void kept_leases::sleep_until(keep_call& k, monotonic_time time) {
    k.until = time;
    k.sleeping = true;
    ctx_.timers.cancel(k.timer);
    k.timer = ctx_.timers.set(k.until, [this, &k] { resume(k); });
    if (k.woken || k.cancelled) resume(k);
}

void kept_leases::resume(keep_call& k) {
    if (!k.sleeping) return;
    if (k.watches) {
        resume_watch(k);
    } else {
        resume_keep(k);
    }
}

void kept_leases::resume_watch(keep_call& k) {
    if (k.cancelled)
        return finish(k, result<watch_step>(make_failure(errc::cancelled, "The caller cancelled the request.")));
    ctx_.timers.cancel(k.timer);
    if (std::exchange(k.woken, false) || ctx_.now.monotonic < k.watched_until) return look(k);
    if (*k.seen) return finish(k, result<watch_step>(watch_step{watch_step::outcome::live, **k.seen}));
    finish(k, result<watch_step>(k.seen->error()));
}

void kept_leases::look(keep_call& k) {
    k.sleeping = false;
    rounds_.inspect(
        k.kept.current.claims,
        [this, &k](result<lease> live, const majority_round&) {
            if (!live && live.error().code != errc::no_quorum) {
                const auto how = k.released ? watch_step::outcome::released : watch_step::outcome::lost;
                return finish(k, result<watch_step>(watch_step{how, {}}));
            }
            // The validity ends earlier than the nodes let the lease expire; others may renew it at any time.
            const milliseconds delay = live ? ctx_.remaining_until(live->valid_until) : watch_retry;
            k.seen = std::move(live);
            sleep_until(k, std::min(k.watched_until, ctx_.now.monotonic + std::max(delay, watch_pause_min)));
        },
        true);
}

void kept_leases::resume_keep(keep_call& k) {
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
        rounds_.inspect(claims, [this, &k](const result<lease>& live, const majority_round&) {
            if (!live && live.error().code != errc::no_quorum)
                return finish(k, keep_step::outcome::lost, "It was revoked or released.");
            sleep(k, std::chrono::floor<milliseconds>(k.until - ctx_.now.monotonic));
        });
        return;
    }
    const milliseconds ttl = k.kept.current.ttl;
    rounds_.renew(claims, ttl, k.origin, true, [this, &k, ttl](result<lease> renewed) {
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

void kept_leases::finish(keep_call& k, keep_step::outcome outcome, std::string reason) {
    finish(k, result<keep_step>(keep_step{outcome, k.kept, std::move(reason)}));
}

template <class Outcome>
void kept_leases::finish(keep_call& k, result<Outcome> outcome) {
    ctx_.timers.cancel(k.timer);
    const auto [first, last] = by_lease_.equal_range(std::string(k.kept.current.claims.attempt_id.str()));
    by_lease_.erase(std::find_if(first, last, [&k](const auto& entry) { return entry.second == &k; }));
    ctx_.answer(k.call, std::move(outcome));
    calls_.erase(k.call);
}

void kept_leases::lease_ended(const nonce& ended, bool released) {
    ended_.push_back(ended);
    if (ended_.size() > ended_max) ended_.pop_front();
    const auto [first, last] = by_lease_.equal_range(std::string(ended.str()));
    for (auto keeper = first; keeper != last; ++keeper)
        wake(*keeper->second, released);
}

void kept_leases::hold_released(const lease_claims& released) {
    const auto [first, last] = by_lease_.equal_range(std::string(released.attempt_id.str()));
    for (auto keeper = first; keeper != last; ++keeper) {
        if (keeper->second->kept.current.claims.hold == released.hold) wake(*keeper->second, true);
    }
}

void kept_leases::wake(keep_call& k, bool released) {
    k.woken = true;
    k.released = k.released || released;
    ctx_.call_at_step_end([this, call = k.call] {
        if (const auto found = calls_.find(call); found != calls_.end()) resume(*found->second);
    });
}

}  // namespace lockcore
