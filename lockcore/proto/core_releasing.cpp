// The end of leases: RELEASE, handoff, CLOSE, revocation (docs/protocol.md R7, HOLDS, HAND-OVER); and requests that are
// cancelled by their idempotency key ("Waiting").
#include <lockcore/types.hpp>
#include <proto/core.hpp>

#include <algorithm>
#include <optional>

namespace lockcore {

void core::on(input::release what) {
    release(std::move(what.claims), std::move(what.origin), true,
            [this, call = what.call](result<release_outcome> outcome) { ctx_.answer(call, std::move(outcome)); });
}

void core::release(lease_claims claims, std::string origin, bool on_majority, release_continuation then) {
    // A TOP-UP after the release would restore the lease.
    rounds_.stop_top_ups(claims.attempt_id, &claims.hold);
    // If a caller waits here for the same resources, one round ends this lease and grants the next (HAND-OVER).
    if (const std::shared_ptr<acquire_attempt> next = on_majority ? hand_over(claims) : nullptr) {
        next->when_previous_released(
            [this, claims, origin = std::move(origin), then = std::move(then)](const acquire_attempt& attempt) {
                then(release_decided(claims, origin, attempt.previous_round(), false));
            });
        return;
    }
    lease_call call = rounds_.call_for(claims);
    rounds_.run(command_kind::release, std::move(call), std::move(claims),
                [this, origin = std::move(origin), on_majority, then = std::move(then)](const round_attempt& round) {
                    const bool became_free = on_majority || round.machine().outcome() == majority_round::verdict::yes;
                    then(release_decided(round.claims(), origin, round.machine(), became_free));
                });
}

std::shared_ptr<acquire_attempt> core::hand_over(const lease_claims& claims) {
    const wait_queues::waiter* const next = refusing_ ? nullptr : queues_.begin_handoff(claims);
    if (!next) return nullptr;
    acquire_call& c = *acquiring_.at(next->call);
    c.handoff = start_attempt(c.request, &claims);
    return c.handoff;
}

result<release_outcome> core::release_decided(const lease_claims& claims, const std::string& origin,
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
    if (holds_left == 0) ctx_.record(ctx_.make_event(event_kind::lease_released, claims, origin, {}, {}));
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
    event ended = ctx_.make_event(event_kind::lease_revoked, what.claims, what.origin, what.reason, {});
    ended.revoked = std::exchange(ended.actor, what.actor);
    ctx_.record(std::move(ended));
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

namespace {

/// How long a request may be on its way to a manager, in addition to its wait there.
constexpr std::chrono::seconds transit_max{10};
/// The pause between two searches for the lease of a cancelled request doubles from the first to the longest.
constexpr milliseconds search_pause_first{100};
constexpr milliseconds search_pause_max{2'000};

}  // namespace

void core::on(input::cancel_request what) {
    const std::string name = name_request(what.request);
    cancelled_requests::entry* const cancelled =
        cancelled_requests_.remember(name, what.request, settings_.waiters_max);
    const bool remembered = cancelled != nullptr;
    if (remembered) {
        cancelled->until = std::max(cancelled->until, ctx_.now.monotonic + what.request.wait + transit_max);
        cancelled->pause = search_pause_first;
        search_later(name);
    }
    auto search = [this, call = what.call, request = what.request, remembered] {
        release_by_key(request, [this, call, remembered](result<release_outcome> outcome) {
            if (outcome && !remembered)
                outcome = make_failure(errc::busy,
                                       "As many cancelled requests are remembered as lease.waiters_max, or "
                                       "the share of one principal in it, allows.");
            ctx_.answer(call, std::move(outcome));
        });
    };
    const auto own = keyed_calls_.find(name);
    if (own == keyed_calls_.end()) return search();
    // What they have acquired is undone until they are answered, so that it is not found.
    own->second.when_answered.push_back(std::move(search));
    const std::vector<call_id> calls = own->second.calls;
    for (const call_id call : calls) {
        acquire_call& c = *acquiring_.at(call);
        c.cancelled = c.key_cancelled = true;
        if (c.waiter) continue_wait(c);
    }
}

void core::end_keyed_call(const std::string& name, call_id call) {
    const auto found = keyed_calls_.find(name);
    std::erase(found->second.calls, call);
    if (!found->second.calls.empty()) return;
    for (auto& next : found->second.when_answered)
        ctx_.call_at_step_end(std::move(next));
    keyed_calls_.erase(found);
}

void core::search_later(const std::string& name) {
    cancelled_requests::entry* const cancelled = cancelled_requests_.find(name);
    if (cancelled == nullptr) return;
    ctx_.timers.cancel(cancelled->timer);
    cancelled->timer = ctx_.timers.set(std::min(cancelled->until, ctx_.now.monotonic + cancelled->pause), [this, name] {
        const cancelled_requests::entry& due = *cancelled_requests_.find(name);
        if (ctx_.now.monotonic >= due.until) return cancelled_requests_.forget(name);
        release_by_key(due.request, [this, name](const auto&) { search_later(name); });
    });
    cancelled->pause = std::min(2 * cancelled->pause, search_pause_max);
}

void core::release_by_key(const acquire_request& request, release_continuation then) {
    const auto attempt = std::make_shared<survey_attempt>(ctx_, look_for(request), links_);
    attempt->start([this, request, then = std::move(then)](const survey_attempt& found) {
        const bool has_common_token = found.machine().outcome() == survey::verdict::found;
        const std::vector<lease_record> reported = found.machine().reported_leases();
        // A lease of which no majority has the same token keeps others out too.
        for (const lease_record& own : reported) {
            if (own.token == fencing_token{} || !is_own(request, own)) continue;
            const auto [match, first_hold] = make_idempotency_digest(request).find_in(own.keys);
            const hold_id hold = first_hold.confirmed();
            // The key is that of the request, even if its ttl is another.
            if (match == idempotency_digest::match::none || own.holds.is_released(hold)) continue;
            lease_claims claims = claims_of(request, own);
            claims.hold = hold;
            const bool on_majority = has_common_token && &own == &reported.front();
            return release(std::move(claims), request.origin, on_majority, [then](result<release_outcome> outcome) {
                if (!outcome && outcome.error().code == errc::lease_lost) return then(release_outcome{});
                then(std::move(outcome));
            });
        }
        if (found.machine().outcome() == survey::verdict::no_quorum)
            return then(make_no_quorum("Too few Redis nodes answered to tell whether the request has a lease.",
                                       found.answers()));
        then(release_outcome{});
    });
}

}  // namespace lockcore
