// The end of leases: RELEASE, handoff, CLOSE, revocation (docs/protocol.md R7, HOLDS, HAND-OVER).
#include <proto/core.hpp>

#include <proto/failures.hpp>

#include <optional>

namespace lockcore {

void core::on(input::release what) {
    release(std::move(what.claims), std::move(what.trace_id),
            [this, call = what.call](result<release_outcome> outcome) { ctx_.answer(call, std::move(outcome)); });
}

void core::release(lease_claims claims, std::string trace_id, release_continuation then) {
    // A TOP-UP after the release would restore the lease.
    rounds_.stop_top_ups(claims.attempt_id, &claims.hold);
    // If a caller waits here for the same resources, one round ends this lease and grants the next (HAND-OVER).
    if (const std::shared_ptr<acquire_attempt> next = hand_over(claims)) {
        next->when_previous_released(
            [this, claims, trace_id = std::move(trace_id), then = std::move(then)](const acquire_attempt& attempt) {
                then(release_decided(claims, trace_id, attempt.previous_round(), false));
            });
        return;
    }
    lease_call call = rounds_.call_for(claims);
    rounds_.run(command_kind::release, std::move(call), std::move(claims),
                [this, trace_id = std::move(trace_id), then = std::move(then)](const round_attempt& round) {
                    then(release_decided(round.claims(), trace_id, round.machine(), true));
                });
}

void core::release_remnant(lease_claims claims, std::string trace_id, release_continuation then) {
    rounds_.stop_top_ups(claims.attempt_id, &claims.hold);
    lease_call call = rounds_.call_for(claims);
    rounds_.run(command_kind::release, std::move(call), std::move(claims),
                [this, trace_id = std::move(trace_id), then = std::move(then)](const round_attempt& round) {
                    const bool became_free = round.machine().outcome() == majority_round::verdict::yes;
                    then(release_decided(round.claims(), trace_id, round.machine(), became_free));
                });
}

std::shared_ptr<acquire_attempt> core::hand_over(const lease_claims& claims) {
    const wait_queues::waiter* const next = refusing_ ? nullptr : queues_.begin_handoff(claims);
    if (!next) return nullptr;
    acquire_call& c = *acquiring_.at(next->call);
    c.handoff = start_attempt(c.request, &claims);
    return c.handoff;
}

result<release_outcome> core::release_decided(const lease_claims& claims, const std::string& trace_id,
                                              const majority_round& round, bool became_free) {
    auto failed =
        rounds_.find_failure(round, claims, "Too few Redis nodes answered; the release is repeated on the others.");
    const bool lost = failed && failed->code == errc::lease_lost;
    if (!lost) validities_.hold_released(claims);  // where nodes have not answered, the release is repeated
    const auto holds_left = static_cast<std::uint32_t>(failed ? 0 : round.holds());
    if (lost || (!failed && holds_left == 0)) {
        end_lease(claims.attempt_id, !failed);
    } else if (failed) {
        // Other holds may be left, and may need the validity that is known.
        kept_.lease_ended(claims.attempt_id, false);
    } else {
        kept_.hold_released(claims);
    }
    if (became_free) queues_.lease_released(claims, round.notified_waiters() > 0);
    if (failed) return std::move(*failed);
    if (holds_left == 0) ctx_.record(ctx_.make_event(event_kind::lease_released, claims, trace_id, {}, {}));
    return release_outcome{holds_left, round.yes()};
}

void core::on(input::revoke what) {
    lease_call call = rounds_.call_for(what.claims);
    call.scope = release_scope::whole_lease;
    rounds_.stop_top_ups(what.claims.attempt_id, nullptr);
    lease_claims claims = what.claims;
    rounds_.run(command_kind::release, std::move(call), std::move(claims),
                [this, what = std::move(what)](const round_attempt& round) {
                    ctx_.answer(what.call, revoke_decided(what, round.machine()));
                });
}

result<release_outcome> core::revoke_decided(const input::revoke& what, const majority_round& round) {
    auto failed = rounds_.find_failure(round, what.claims,
                                       "Too few Redis nodes answered; the revocation is repeated on the others.");
    if (!failed || failed->code != errc::lease_lost) validities_.lease_revoked(what.claims);
    end_lease(what.claims.attempt_id, false);
    queues_.lease_released(what.claims, round.notified_waiters() > 0);
    if (failed) return std::move(*failed);
    lease_claims revoked = what.claims;
    revoked.holder = what.actor;
    ctx_.record(ctx_.make_event(event_kind::lease_revoked, revoked, what.trace_id, what.reason, {}));
    return release_outcome{0, round.yes()};
}

void core::end_lease(const nonce& attempt, bool released) {
    rounds_.stop_top_ups(attempt, nullptr);
    validities_.lease_ended(attempt);
    kept_.lease_ended(attempt, released);
}

void core::on(input::close_to_new_holds what) {
    close_outcome closing;
    closing.mark = hold_id::from_bits(ctx_.random.next());
    lease_call call = rounds_.call_for(what.claims);
    call.close_mark = closing.mark.str();
    rounds_.run(command_kind::close, std::move(call), std::move(what.claims),
                [this, answered = what.call, closing](const round_attempt& round) mutable {
                    const majority_round::verdict verdict = round.machine().outcome();
                    closing.closed = verdict == majority_round::verdict::yes;
                    if (!closing.closed) on(input::reopen{round.claims(), closing});
                    if (closing.closed || verdict == majority_round::verdict::other_holds)
                        return ctx_.answer(answered, result<close_outcome>(closing));
                    ctx_.answer(answered, result<close_outcome>(*rounds_.find_failure(
                                              round.machine(), round.claims(),
                                              "Too few Redis nodes answered to tell whether other holds are left.")));
                });
}

void core::on(input::reopen what) {
    lease_call call = rounds_.call_for(what.claims);
    call.close_mark = what.closed.mark.str();
    call.lift = true;
    rounds_.send(command_kind::close, std::move(call), std::move(what.claims));
}

}  // namespace lockcore
