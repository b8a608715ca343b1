// The end of leases: RELEASE, hand-over, CLOSE, revocation (docs/protocol.md R7, HOLDS, HAND-OVER).
#include <proto/core.hpp>

#include <proto/failures.hpp>

#include <optional>

namespace lockcore {

void core::on(input::close_to_new_holds what) {
    close_outcome closing;
    closing.mark = hold_id::from_bits(ctx_.random.next());
    lease_call call = call_for(what.claims);
    call.close_mark = closing.mark.str();
    run_round(command_kind::close, std::move(call), std::move(what.claims),
              [this, answered = what.call, closing](const round_attempt& round) mutable {
                  const majority_round::verdict verdict = round.machine().outcome();
                  closing.closed = verdict == majority_round::verdict::yes;
                  if (!closing.closed) on(input::reopen{round.claims(), closing});
                  if (closing.closed || verdict == majority_round::verdict::other_holds)
                      return answer(answered, result<close_outcome>(closing));
                  const auto failed =
                      round_failure(round.machine(), round.claims(),
                                    "Too few Redis nodes answered to tell whether other holds are left.");
                  answer(answered, result<close_outcome>(*failed));
              });
}

void core::on(input::reopen what) {
    lease_call call = call_for(what.claims);
    call.close_mark = what.closed.mark.str();
    call.lift = true;
    std::make_shared<round_attempt>(ctx_, command_kind::close, std::move(call), std::move(what.claims), links_,
                                    &repeater_)
        ->start();
}

void core::on(input::release what) {
    release(std::move(what.claims), std::move(what.trace_id),
            [this, call = what.call](result<release_outcome> outcome) { answer(call, std::move(outcome)); });
}

void core::release(lease_claims claims, std::string trace_id, release_continuation then) {
    // A TOP-UP after the release would restore the lease.
    stop_top_ups(claims.attempt_id, &claims.hold);
    // If a caller waits here for the same resources, one round ends this lease and grants the next (HAND-OVER).
    if (const std::shared_ptr<acquire_attempt> next = hand_over(claims)) {
        next->previous_released.then(
            [this, claims, trace_id = std::move(trace_id), then = std::move(then), &attempt = *next] {
                then(release_decided(claims, trace_id, attempt.previous_round(), true));
            },
            next);
        return;
    }
    lease_call call = call_for(claims);
    run_round(command_kind::release, std::move(call), std::move(claims),
              [this, trace_id = std::move(trace_id), then = std::move(then)](const round_attempt& round) {
                  then(release_decided(round.claims(), trace_id, round.machine(), false));
              });
}

result<release_outcome> core::release_decided(const lease_claims& claims, const std::string& trace_id,
                                              const majority_round& round, bool handed_over) {
    auto failed = round_failure(round, claims, "Too few Redis nodes answered; the release is repeated on the others.");
    const bool lost = failed && failed->code == errc::lease_lost;
    if (!lost) released_.add(claims.hold.str());  // where nodes have not answered, the release is repeated
    const auto holds_left = static_cast<std::uint32_t>(failed ? 0 : round.holds());
    if (lost || (!failed && holds_left == 0)) {
        on_lease_ended(claims.attempt_id, !failed);
    } else if (failed) {
        // Other holds may be left, and may need the validity that is known.
        notify_keepers(claims.attempt_id, false);
    } else {
        notify_keepers_of_hold(claims);
    }
    if (!handed_over) on_lease_released(claims, round.notified_waiters() > 0);
    if (failed) return std::move(*failed);
    if (holds_left == 0) record(event_kind::lease_released, claims, trace_id, {}, {});
    return release_outcome{holds_left, round.yes()};
}

void core::on(input::revoke what) {
    lease_call call = call_for(what.claims);
    call.scope = release_scope::whole_lease;
    stop_top_ups(what.claims.attempt_id, nullptr);
    lease_claims claims = what.claims;
    run_round(command_kind::release, std::move(call), std::move(claims),
              [this, what = std::move(what)](const round_attempt& round) {
                  auto failed =
                      round_failure(round.machine(), what.claims,
                                    "Too few Redis nodes answered; the revocation is repeated on the others.");
                  if (!failed || failed->code != errc::lease_lost) released_.add(what.claims.attempt_id.str());
                  on_lease_ended(what.claims.attempt_id, false);
                  on_lease_released(what.claims, round.machine().notified_waiters() > 0);
                  if (failed) return answer(what.call, result<release_outcome>(std::move(*failed)));
                  lease_claims revoked = what.claims;
                  revoked.holder = what.actor;
                  record(event_kind::lease_revoked, revoked, what.trace_id, what.reason, {});
                  answer(what.call, result<release_outcome>(release_outcome{0, round.machine().yes()}));
              });
}

void core::on_lease_ended(const nonce& attempt, bool released) {
    stop_top_ups(attempt, nullptr);
    validities_.erase(attempt);
    notify_keepers(attempt, released);
}

void core::stop_top_ups(const nonce& attempt, const hold_id* hold) {
    const auto [first, last] = renewing_.equal_range(attempt);
    for (auto renewal = first; renewal != last; ++renewal) {
        const auto round = renewal->second.lock();
        if (round && (!hold || round->claims().hold == *hold)) round->disable_top_ups();
    }
}

void core::release_in_background(lease_call call, lease_claims claims) {
    std::make_shared<round_attempt>(ctx_, command_kind::release, std::move(call), std::move(claims), links_, &repeater_)
        ->start();
}

}  // namespace lockcore
