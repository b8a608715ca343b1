// Grants, and further holds of re-entrant owners and repeated requests.
#include <proto/core.hpp>

#include <lockcore/types.hpp>
#include <proto/lease_record.hpp>

#include <algorithm>

namespace lockcore {

void core::on(input::acquire what) {
    acquire_call& c = *acquiring_.emplace(what.call, std::make_unique<acquire_call>()).first->second;
    c.call = what.call;
    c.request = std::move(what.request);
    c.started_at = ctx_.now.monotonic;

    if (const std::string name = name_request(c.request); !name.empty()) {
        keyed_calls_[name].calls.push_back(c.call);
        c.key_cancelled = cancelled_requests_.find(name) != nullptr;
        if (c.key_cancelled) return finish(c, make_cancelled_failure(c));
    }
    if (refusing_) return finish(c, make_shutdown_failure());
    if (c.request.accepts == acquire_request::answer::repeated) return reenter_if_held(c);
    // A new caller does not overtake the waiters of this manager, nor those of other managers whose turn it is. But a
    // caller that already holds the lease need not wait for itself.
    if (queues_.must_wait(c.request)) return reenter_if_held(c);
    c.attempt = start_attempt(c.request, nullptr);
    await_attempt(c);
}

failure core::make_cancelled_failure(const acquire_call& c) {
    if (c.key_cancelled)
        return make_failure(errc::idempotency_mismatch, "The request with this idempotency key was cancelled.");
    return make_failure(errc::cancelled, "The caller cancelled the request.");
}

failure core::make_shutdown_failure() {
    return make_failure(errc::shutting_down, "No new leases are granted: the lock manager is shutting down.");
}

std::shared_ptr<acquire_attempt> core::start_attempt(const acquire_request& request, const lease_claims* previous) {
    lease_call call;
    call.resources = all_resources(request);
    call.shared = request.shared.size();
    const std::uint64_t high = ctx_.random.next();
    call.attempt_id = nonce::from_bits(high, ctx_.random.next() & ~std::uint64_t{1});  // its hold is tentative
    call.hold = hold_id::of_grant(call.attempt_id);
    call.scope = release_scope::undone_hold;
    call.ttl = request.ttl;
    lease_claims claims;
    claims.hold = call.hold;
    claims.resources = request.resources;
    claims.shared = request.shared;
    claims.holder = request.holder;
    claims.granted_at = std::chrono::floor<milliseconds>(ctx_.now.wall);  // the lease_id has ms
    call.granted_at = claims.granted_at;
    const idempotency_digest key = make_idempotency_digest(request);
    // The waiters behind this one must be notified when another manager ends the lease.
    const bool marked = request.kept || queues_.has_several(first_resource(request));
    const std::string own_hold(call.hold.str());
    const std::string close_marks = request.closed ? own_hold + own_hold : std::string();
    call.tail = lease_tail(claims, {request.ttl, 0, milliseconds{0}, key.text,
                                    marked ? std::string_view(wake_mark_) : std::string_view{}, close_marks});
    if (request.wait > milliseconds{0}) call.wake_mark = wake_mark_;
    // No counter is below the base of its node. With a hint above the highest base the counters of all nodes are equal.
    // A floor that was only announced to nodes is no reason for higher tokens: its change may never be finished.
    epoch lowest = floor_;
    for (const auto& link : links_)
        lowest = std::max(lowest, link->base_epoch());
    call.hint = observed_tokens_.hint_for(call.resources, fencing_token{value_of(lowest) * tokens_per_epoch});
    std::shared_ptr<round_attempt> release_previous;
    if (previous) {
        call.previous = previous->attempt_id;
        call.previous_hold = previous->hold;
        release_previous = rounds_.prepare_release(*previous);
    }
    auto attempt =
        std::make_shared<acquire_attempt>(ctx_, std::move(call), links_, observed_tokens_, std::move(release_previous));
    attempt->start();
    return attempt;
}

void core::await_attempt(acquire_call& c) {
    c.attempt->when_decided([this, &c](const acquire_attempt&) { attempt_decided(c); });
}

void core::attempt_decided(acquire_call& c) {
    if (c.attempt->machine().outcome() == acquire_machine::verdict::granted) return attempt_granted(c);
    c.attempt->undo();
    // The next attempts find the tokens plausible that a majority has.
    if (const auto common = c.attempt->implausible_epoch_of_majority()) ctx_.learn_epoch(*common);
    if (c.attempt->needs_new_epoch() && !std::exchange(c.epoch_advanced, true)) return advance_epoch(c);
    attempt_refused(c);
}

void core::attempt_granted(acquire_call& c) {
    acquire_attempt& attempt = *c.attempt;
    const validity_time valid_until = end_of_validity(c.request.ttl, attempt.started_at());
    // With an idempotency key the caller may repeat the request to get this lease, so the lease is kept.
    const bool cancelled = c.cancelled && (c.request.idempotency_key.empty() || c.key_cancelled);
    if (cancelled || ctx_.remaining_until(valid_until) <= milliseconds{0}) {
        attempt.undo();
        if (cancelled) return take_outcome(c, make_cancelled_failure(c));
        return take_outcome(
            c, make_no_quorum("The nodes took longer to answer than the ttl of the lease.", attempt.answers()));
    }
    lease_claims claims;
    claims.attempt_id = attempt.call().attempt_id;
    claims.token = attempt.machine().token();
    claims.resources = c.request.resources;
    claims.shared = c.request.shared;
    claims.holder = c.request.holder;
    claims.granted_at = attempt.call().granted_at;
    claims.hold = c.request.idempotency_key.empty() ? attempt.call().hold : attempt.call().hold.confirmed();
    claims.may_be_shared = !c.request.holder.owner.empty() || !c.request.idempotency_key.empty();
    lease out = rounds_.make_lease(std::move(claims), c.request.ttl, valid_until);
    out.nodes_granted = attempt.machine().stamps();
    validities_.remember(out.claims, valid_until);
    attempt.report_if_thin();
    take_outcome(c, std::move(out));
}

void core::advance_epoch(acquire_call& c) {
    // The tokens may belong to a later epoch than any base: that of an earlier call of this function.
    const epoch observed = std::max(highest_epoch(), observed_tokens_.highest_epoch(all_resources(c.request)));
    epoch_request without_node{{}, {}, false, observed};  // always gets a new epoch
    ctx_.ask_register(register_request::draw{std::move(without_node)}, [this, &c](register_response response) {
        const auto* drawn = std::get_if<drawn_epoch>(&response);
        if (!drawn) return attempt_refused(c);
        ctx_.learn_epoch(drawn->value);
        // The hint of the next ACQUIRE is then the first token of the new epoch.
        observed_tokens_.observe(all_resources(c.request), fencing_token{value_of(drawn->value) * tokens_per_epoch});
        c.attempt = start_attempt(c.request, nullptr);
        await_attempt(c);
    });
}

void core::attempt_refused(acquire_call& c) {
    const acquire_attempt& attempt = *c.attempt;
    const acquire_machine& machine = attempt.machine();
    if (machine.outcome() != acquire_machine::verdict::locked)
        return take_outcome(c, make_no_quorum("Too few Redis nodes answered to grant a lease.", attempt.answers()));
    failure locked = machine.occupied().count() >= majority_of(links_.size())
                         ? occupied_by_another_value(attempt.answers(), machine.occupied(), "at least ")
                         : make_failure(errc::resource_locked, "Another lease holds the resource.");
    locked.remaining = std::min(machine.remaining(),
                                settings_.max_ttl);  // a leaked key has no ttl
    if (const auto own = machine.own_lease())
        return reenter_lease(c, *own, [this, &c, locked] { take_outcome(c, locked); });
    take_outcome(c, std::move(locked));
}

// --- further holds: re-entrant owners, repeated requests

lease_claims core::claims_of(const acquire_request& request, const lease_record& own) {
    lease_claims claims;
    claims.attempt_id = own.attempt_id;
    claims.token = own.token;
    claims.resources = request.resources;
    claims.shared = request.shared;
    claims.holder = own.holder;  // a request that is repeated with its key may have another owner
    claims.granted_at = own.granted_at;
    claims.may_be_shared = true;
    return claims;
}

lease_call core::look_for(const acquire_request& request) {
    lease_call call;
    call.resources = {first_resource(request)};
    if (!request.resources.empty()) return call;
    lease_claims caller;
    caller.holder = request.holder;
    caller.shared = request.shared;
    call.tail = lease_tail(caller, {request.ttl, 0, milliseconds{0}, make_idempotency_digest(request).text, {}});
    return call;
}

bool core::is_own(const acquire_request& request, const lease_record& found) {
    if (!has_resources_of(found, request) || found.holder.principal != request.holder.principal) return false;
    return found.holder == request.holder ||
           make_idempotency_digest(request).find_in(found.keys).result != idempotency_digest::match::none;
}

void core::reenter_if_held(acquire_call& c) {
    const bool may_reenter = !c.request.holder.owner.empty() && c.request.accepts == acquire_request::answer::any;
    if (!may_reenter && c.request.idempotency_key.empty())
        return take_outcome(c, queues_.make_locked_failure(first_resource(c.request)));
    const auto attempt = std::make_shared<survey_attempt>(ctx_, look_for(c.request), links_);
    attempt->start([this, &c](const survey_attempt& found) {
        const auto refuse = [this, &c] { take_outcome(c, queues_.make_locked_failure(first_resource(c.request))); };
        if (found.machine().outcome() != survey::verdict::found) return refuse();
        const lease_record& record = *found.machine().lease();
        if (!is_own(c.request, record)) return refuse();
        reenter_lease(c, record, refuse);
    });
}

void core::reenter_lease(acquire_call& c, const lease_record& own, std::function<void()> otherwise) {
    if (own.token == fencing_token{}) return otherwise();  // only a faulty majority: one node may have none yet
    lease_claims claims = claims_of(c.request, own);
    const idempotency_digest key = make_idempotency_digest(c.request);
    const auto [match, first_hold] = key.find_in(own.keys);
    if (match == idempotency_digest::match::other_request)
        return take_outcome(c, make_failure(errc::idempotency_mismatch,
                                            "The idempotency key was used for another "
                                            "request, whose lease is still live."));
    const bool known = match == idempotency_digest::match::same;
    // Each of several calls that keep one lease has a hold, so that the end of one does not end the others.
    if (known && !c.request.kept) {
        claims.hold = first_hold.confirmed();
        if (own.holds.is_released(claims.hold))
            return take_outcome(c, make_failure(errc::idempotency_mismatch,
                                                "The hold of this idempotency key was released, and "
                                                "its lease lives on with other holds."));
        return repeat_hold(c, std::move(claims), std::move(otherwise));
    }
    if (!known && (c.request.accepts != acquire_request::answer::any || c.request.holder.owner.empty() ||
                   !(own.holder == c.request.holder)))
        return otherwise();
    // Its last hold is being sealed and released. A HOLD that the nodes refuse would cost a RELEASE and a tombstone.
    if (!own.holds.close_marks().empty()) return otherwise();
    claims.hold = hold_id::from_bits(ctx_.random.next()).tentative();
    add_hold(c, std::move(claims), known ? std::string() : key.text, known, std::move(otherwise));
}

void core::repeat_hold(acquire_call& c, lease_claims claims, std::function<void()> otherwise) {
    rounds_.inspect(std::move(claims),
                    [this, &c, otherwise = std::move(otherwise)](result<lease> live, const majority_round& round) {
                        if (c.key_cancelled) return take_outcome(c, make_cancelled_failure(c));
                        if (!live && live.error().code != errc::lease_lost) return take_outcome(c, std::move(live));
                        // With a CLOSE mark its last hold is being sealed and released: its token may be sealed.
                        if (!live || live->validity <= milliseconds{0} || !round.close_marks().empty())
                            return otherwise();
                        live->repeated = true;
                        take_outcome(c, std::move(live));
                    });
}

void core::add_hold(acquire_call& c, lease_claims claims, std::string key, bool known,
                    std::function<void()> otherwise) {
    lease_call call = rounds_.call_for(claims);
    call.ttl = c.request.ttl;
    call.key = std::move(key);
    rounds_.run(command_kind::hold, std::move(call), std::move(claims),
                [this, &c, known, otherwise = std::move(otherwise)](const round_attempt& round) {
                    const validity_time valid_until = end_of_validity(c.request.ttl, round.started_at());
                    const bool held = round.machine().outcome() == majority_round::verdict::yes &&
                                      ctx_.remaining_until(valid_until) > milliseconds{0};
                    if (!held || c.cancelled) return undo_hold(c, round, otherwise);
                    lease_claims held_claims = round.claims();
                    if (!round.call().key.empty()) held_claims.hold = held_claims.hold.confirmed();
                    lease out = rounds_.make_lease(std::move(held_claims), c.request.ttl, valid_until, round.machine());
                    validities_.remember(out.claims, valid_until);
                    out.repeated = known;
                    out.reentrant = true;
                    take_outcome(c, std::move(out));
                });
}

void core::undo_hold(acquire_call& c, const round_attempt& round, const std::function<void()>& otherwise) {
    const majority_round& machine = round.machine();
    lease_call undo = round.call();
    undo.scope = release_scope::undone_hold;
    rounds_.send(command_kind::release, std::move(undo), round.claims());
    if (c.cancelled) return take_outcome(c, make_cancelled_failure(c));
    if (machine.outcome() == majority_round::verdict::lost) return otherwise();
    if (machine.outcome() == majority_round::verdict::exhausted)
        return take_outcome(
            c, make_failure(errc::renewals_exhausted,
                            machine.limit() > 0
                                ? "The lease has " + std::to_string(holds_max) + " holds, the largest number allowed."
                                : "With another hold the lease would be held longer than "
                                  "lease.max_hold_ms allows."));
    constexpr const char* too_few = "Too few Redis nodes answered to add another hold.";
    take_outcome(c, rounds_.find_failure(machine, round.claims(), too_few)
                        .value_or(make_no_quorum(too_few, collect_answers(machine, links_))));
}

// --- outcomes

bool core::is_retryable(const failure& f) {
    return f.code == errc::resource_locked || f.code == errc::no_quorum;
}

void core::take_outcome(acquire_call& c, result<lease> outcome) {
    const bool waits = c.request.wait > milliseconds{0};
    if (outcome || !waits || !is_retryable(outcome.error())) return finish(c, std::move(outcome));
    if (!c.waiter) return join_queue(c);
    queues_.end_try(*c.waiter, outcome.error());
    continue_wait(c);
}

void core::join_queue(acquire_call& c) {
    const result<wait_queues::waiter*> joined = queues_.join(c.call, c.request);
    if (!joined) return finish(c, joined.error());
    c.waiter = *joined;
    continue_wait(c);
}

void core::continue_wait(acquire_call& c) {
    if (c.waiter->trying) return;
    if (c.handoff) {
        c.attempt = std::exchange(c.handoff, nullptr);
    } else {
        if (c.cancelled) return finish(c, make_cancelled_failure(c));
        if (refusing_) return finish(c, make_shutdown_failure());
        switch (queues_.decide(*c.waiter)) {
            case wait_queues::choice::sleep:
                return;
            case wait_queues::choice::give_up:
                return finish(c, queues_.give_up(*c.waiter));
            case wait_queues::choice::try_now:
                c.attempt = start_attempt(c.request, nullptr);
        }
    }
    queues_.begin_try(*c.waiter);
    c.epoch_advanced = false;
    await_attempt(c);
}

void core::finish(acquire_call& c, result<lease> outcome) {
    if (c.waiter) queues_.leave(*c.waiter, outcome.has_value());
    record_outcome(c, outcome);
    ctx_.answer(c.call, std::move(outcome));
    const call_id call = c.call;
    const std::string name = name_request(c.request);
    acquiring_.erase(call);
    if (!name.empty()) end_keyed_call(name, call);
}

void core::record_outcome(const acquire_call& c, const result<lease>& outcome) {
    event e;
    if (outcome) {
        // A further hold is recorded as a renewal, and so is a repeated answer: the gateway that sent the first attempt
        // may not know that it was granted.
        const bool granted = !outcome->reentrant && !outcome->repeated;
        std::string detail;
        if (outcome->repeated) {
            detail = "repeated request";
        } else if (outcome->reentrant) {
            detail = "hold " + std::to_string(outcome->hold_count);
        }
        // A repeated answer that adds no hold extends nothing.
        const milliseconds extended = outcome->repeated && !outcome->reentrant ? outcome->validity : outcome->ttl;
        e = ctx_.make_event(granted ? event_kind::lease_granted : event_kind::lease_renewed, outcome->claims,
                            c.request.origin, std::move(detail), extended);
        e.nodes_granted = outcome->nodes_granted;
        e.nodes = outcome->nodes;
    } else if (is_retryable(outcome.error()) && c.request.record_refusal) {
        lease_claims wanted;
        wanted.resources = c.request.resources;
        wanted.shared = c.request.shared;
        wanted.holder = c.request.holder;
        e = ctx_.make_event(event_kind::lease_refused, wanted, c.request.origin, to_string(outcome.error().code),
                            c.request.ttl);
    } else {
        return;
    }
    e.waited = std::chrono::duration_cast<std::chrono::microseconds>(ctx_.now.monotonic - c.started_at);
    ctx_.record(std::move(e));
}

}  // namespace lockcore
