#include <sim/parts/sim_gateway.hpp>

#include <proto/validity.hpp>

#include <utility>

namespace sim {
namespace {

using lockcore::acquire_machine;
using lockcore::command_kind;
using lockcore::fencing_token;
using lockcore::majority_round;
using lockcore::node_index;
using lockcore::node_reply;
using lockcore::reply_status;
using outcome = call_answer::outcome;

constexpr node_index at_index(std::uint32_t n) {
    return static_cast<node_index>(n);
}

}  // namespace

// --- ACQUIRE, as in acquire_attempt and shard

void sim_gateway::perform(std::uint32_t at, acquire_machine::step step) {
    while (step.targets.any()) {
        attempt& a = attempts_[at];
        const bool confirms = step.kind == command_kind::confirm;
        if (confirms) {
            ctx_.hit(a.complete ? probe::confirm_after_grant : probe::confirm_round);
            a.confirmed = true;
        }
        lockcore::node_set answered;
        std::array<node_reply, lockcore::nodes_max> answers{};
        for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
            if (!step.targets[n]) continue;
            const bool assumed_confirmed = confirms && (ctx_.is_active(mutation::skip_confirm) ||
                                                        (a.stale_at[n] != 0 && a.stale_at[n] == value_of(step.token)));
            answers[n].status = assumed_confirmed ? reply_status::ok : send(at, n, step.kind, value_of(step.token));
            answered[n] = assumed_confirmed || answers[n].status != reply_status::ok;
        }
        acquire_machine::step next;
        for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
            if (!answered[n]) continue;
            if (!confirms) record_previous(attempts_[at], n, answers[n]);
            const acquire_machine::step s = confirms
                                                ? a.acquisition.confirm_answered(at_index(n), step.token, answers[n])
                                                : a.acquisition.acquire_answered(at_index(n), answers[n]);
            if (s.targets.any()) next = s;
        }
        step = next;
    }
    attempt& a = attempts_[at];
    if (a.acquisition.outcome() == acquire_machine::verdict::granted && !a.complete) {
        a.complete = true;
        check_.grant_complete(a.base_request.resources, a.base_request.nonce, value_of(a.acquisition.token()),
                              a.before);
    }
    if (a.acquisition.outcome() != acquire_machine::verdict::pending && !a.decided) acquire_done(at);
}

void sim_gateway::acquire_answered(std::uint32_t at, std::uint32_t node, command_kind command, std::uint64_t token,
                                   node_reply r) {
    attempt& a = attempts_[at];
    if (a.first_reply == microseconds{0}) a.first_reply = local_time();
    const std::uint64_t chosen = value_of(a.acquisition.token());
    if (command == command_kind::acquire && r.status == reply_status::ok && chosen != 0 && r.value > chosen &&
        ctx_.is_active(mutation::late_higher_counts)) {
        r.value = chosen;
    }
    if (command == command_kind::acquire && r.status == reply_status::timeout &&
        ctx_.is_active(mutation::acquire_counts_silence)) {
        r = status_reply(reply_status::ok);
        r.value = value_of(a.acquisition.highest_observed_token());
    }
    if (r.status == reply_status::stale && ctx_.is_active(mutation::stale_counts)) a.stale_at[node] = r.value;
    if (command == command_kind::acquire) record_previous(a, node, r);
    const std::size_t stamps = a.acquisition.stamps();
    const acquire_machine::step next = command == command_kind::acquire
                                           ? a.acquisition.acquire_answered(at_index(node), r)
                                           : a.acquisition.confirm_answered(at_index(node), fencing_token{token}, r);
    count_probes(a, chosen, command, r);
    if (a.complete && command == command_kind::confirm && a.acquisition.stamps() > stamps)
        ctx_.hit(probe::late_confirm_counted);
    perform(at, next);
}

void sim_gateway::count_probes(const attempt& a, std::uint64_t token_before, command_kind command,
                               const node_reply& r) {
    const std::uint64_t token = value_of(a.acquisition.token());
    if (token_before != 0 && token > token_before)
        ctx_.hit(r.status == reply_status::stale ? probe::raised_by_stale : probe::raised_to_nodes_ahead);
    if (command != command_kind::acquire || r.status != reply_status::ok || token_before == 0) return;
    for_each_resource(a.base_request.resources, [&](std::uint32_t resource) {
        if (a.complete && check_.highest_complete()[resource] > token) ctx_.hit(probe::late_reply_after_newer_grant);
    });
    ctx_.hit(r.value == token_before  ? probe::late_reply_equal
             : r.value > token_before ? probe::late_reply_higher
                                      : probe::late_reply_lower);
}

/// Evaluates what a reply to ACQUIRE says about the previous lease, as acquire_attempt::record_previous does.
void sim_gateway::record_previous(attempt& a, std::uint32_t node, const node_reply& r) {
    if (a.base_request.previous == 0) return;
    if (r.status != reply_status::ok && r.status != reply_status::other_holds) release_previous(a, node);
    if (!a.pending_release) return;
    node_reply previous_reply = status_reply(r.status);
    if (r.status == reply_status::other_holds) {
        previous_reply.status = reply_status::ok;
        previous_reply.text = r.text;
    } else if ((r.status == reply_status::ok && !r.took_over) || r.status == reply_status::held ||
               r.status == reply_status::own) {
        previous_reply.status = reply_status::lost;
    }
    if (a.previous.answered(at_index(node), previous_reply) == majority_round::verdict::pending) return;
    const call c = *std::exchange(a.pending_release, std::nullopt);
    if (a.previous.holds() > 0) ctx_.hit(probe::hand_over_other_holds);
    release_done(c, a.previous, true);
}

/// Releases the previous lease on a node that did not take it over, where it would otherwise stay until its ttl ends.
void sim_gateway::release_previous(const attempt& a, std::uint32_t node) {
    const request q = a.base_request;
    const std::uint32_t at = new_attempt(a.client_call, command_kind::release);
    attempts_[at].base_request.nonce = q.previous;
    attempts_[at].base_request.hold = q.previous_hold;
    attempts_[at].decided = true;
    ctx_.hit(probe::previous_released);
    (void)send(at, node, command_kind::release, 0);
    free_if_finished(at);
}

void sim_gateway::acquire_done(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.decided = true;
    const call c = a.client_call;
    const ticket waiter_ticket = a.waiter_ticket;
    const bool several = (a.base_request.resources & (a.base_request.resources - 1)) != 0;
    if (a.acquisition.outcome() == acquire_machine::verdict::granted) {
        microseconds elapsed = local_time() - a.started;
        if (ctx_.is_active(mutation::no_final_validity)) elapsed = a.first_reply - a.started;
        if (ctx_.is_active(mutation::validity_from_answer)) elapsed = microseconds{0};
        auto left = std::chrono::floor<milliseconds>(lockcore::validity(a.base_request.ttl, elapsed));
        if (ctx_.is_active(mutation::no_drift_allowance))
            left = std::chrono::floor<milliseconds>(a.base_request.ttl - elapsed);
        const bool wanted = clients_.is_waiting_for(c);
        if (wanted && left > milliseconds{0}) {
            if (!a.confirmed) ctx_.hit(probe::granted_in_one_round);
            if (ctx_.config.nodes > 1 && a.acquisition.stamps() == lockcore::majority_of(ctx_.config.nodes))
                ctx_.hit(probe::thin_majority);
            if (several) ctx_.hit(probe::several_granted);
            if (ctx_.config.buckets < ctx_.config.resources) ctx_.hit(probe::bucket_shared_by_grants);
            if (a.base_request.previous != 0 && waiter_ticket != 0) ctx_.hit(probe::handed_to_waiter);
            return finish_call(
                c, waiter_ticket,
                {outcome::done, a.base_request.nonce, value_of(a.acquisition.token()), left, 1, a.base_request.hold});
        }
        ctx_.hit(wanted ? probe::validity_used_up : probe::unwanted_grant_undone);
        undo(at);
        return finish_call(c, waiter_ticket, {wanted ? outcome::no_quorum : outcome::cancelled});
    }
    if (several) ctx_.hit(probe::several_refused);
    undo(at);
    const bool locked = a.acquisition.outcome() == acquire_machine::verdict::locked;
    ctx_.hit(locked ? probe::locked : probe::no_quorum);
    const milliseconds left = a.acquisition.remaining();
    if (locked) {
        const auto own = a.acquisition.own_lease();
        if (own && reenter_lease(c, waiter_ticket, *own, false, left)) return;
    }
    finish_call(c, waiter_ticket, {locked ? outcome::locked : outcome::no_quorum, 0, 0, left});
}

void sim_gateway::undo(std::uint32_t at) {
    attempt& a = attempts_[at];
    // A repeated request may have been answered with this lease, or may be later. If not, the lease expires.
    const bool may_be_repeated =
        a.client_call.key.key_hash != 0 && a.acquisition.outcome() != acquire_machine::verdict::locked;
    if (may_be_repeated && !ctx_.is_active(mutation::undo_ignores_repeats)) return ctx_.hit(probe::left_for_repeat);
    a.undone = true;
    a.undone_at = ctx_.now();
    if (ctx_.is_active(mutation::no_undo)) return;
    if (a.timed_out) ctx_.hit(probe::undo_after_timeout);
    const lockcore::node_set targets = a.acquisition.undo_targets();
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
        if (!targets[n]) continue;
        a.undone_in[n] = links_[n]->run();
        // Only its own hold: another call of the same owner may have added a hold meanwhile.
        a.base_request.undone = true;
        a.base_request.whole_lease = ctx_.is_active(mutation::undo_drops_holds);
        if (send(at, n, command_kind::release, 0) != reply_status::ok) a.clean = false;
    }
}

// --- RENEW, HOLD, INSPECT, RELEASE, as in round_attempt and shard

void sim_gateway::round_answered(std::uint32_t at, std::uint32_t node, node_reply r) {
    attempt& a = attempts_[at];
    if (a.command == command_kind::look) {
        const bool decided = a.survey.answered(at_index(node), r) != lockcore::survey::verdict::pending;
        if (decided && !a.decided) survey_done(at);
        return;
    }
    const bool renews = a.command == command_kind::renew;
    if (renews && r.status == reply_status::timeout && ctx_.is_active(mutation::renew_counts_silence))
        r.status = reply_status::ok;
    const auto verdict = a.round.answered(at_index(node), r);
    const bool renewed = renews && verdict == majority_round::verdict::yes;
    if (renewed && a.may_top_up && local_time() - a.started < a.base_request.ttl / 4) top_up(at);
    if (verdict != majority_round::verdict::pending && !a.decided) round_done(at);
}

void sim_gateway::top_up(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.base_request.renewals = static_cast<std::uint32_t>(a.round.value());
    const std::string& mark = a.round.close_mark();
    if (mark.size() == 32) {
        a.base_request.closed_by = std::stoull(mark.substr(0, 16), nullptr, 16);
        a.base_request.closed_mark = std::stoull(mark.substr(16), nullptr, 16);
    }
    a.base_request.held = a.round.held();
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
        if (a.topped_up[n] || a.round.answer_of(at_index(n)) != reply_status::lost) continue;
        a.topped_up.set(n);
        (void)send(at, n, command_kind::top_up, a.client_call.token);
    }
}

void sim_gateway::round_done(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.decided = true;
    if (a.command == command_kind::undo) return;
    if (a.command == command_kind::release) {
        return release_done(a.client_call, a.round, false);
    }
    const call c = a.client_call;
    // HOLD or INSPECT on behalf of an acquire call.
    if (c.kind == call_kind::acquire) return on_reentered(at);
    call_answer out{outcome::no_quorum, c.nonce, c.token, milliseconds{0}};
    switch (a.round.outcome()) {
        case majority_round::verdict::yes: {
            out.result = outcome::done;
            const bool inspects = c.kind == call_kind::inspect;
            check_.lease_reported_alive(c.resources, c.token, a.before, inspects ? "INSPECT" : "RENEW");
            const milliseconds lasts = inspects ? a.round.remaining() : c.ttl;
            out.left = std::chrono::floor<milliseconds>(lockcore::validity(lasts, local_time() - a.started));
            out.holds = static_cast<std::uint32_t>(a.round.holds());
            if (out.left <= milliseconds{0}) out.result = outcome::too_late;
            if (out.result == outcome::done) ctx_.hit(inspects ? probe::inspected_yes : probe::renewed);
            break;
        }
        case majority_round::verdict::lost:
            out.result = outcome::lost;
            ctx_.hit(c.kind == call_kind::renew ? probe::renew_lost : probe::inspected_lost);
            break;
        case majority_round::verdict::exhausted:
            out.result = outcome::exhausted;
            ctx_.hit(probe::renewals_exhausted);
            break;
        default:
            if (c.kind == call_kind::renew) ctx_.hit(probe::renew_no_quorum);
            break;
    }
    answer_client(c, out);
}

/// Ends a release call. `handed_over`: one round released this lease and acquired the next.
void sim_gateway::release_done(const call& c, const majority_round& round, bool handed_over) {
    const bool yes = round.outcome() == majority_round::verdict::yes;
    const std::uint32_t holds = yes ? static_cast<std::uint32_t>(round.holds()) : 0;
    const bool lost = round.outcome() == majority_round::verdict::lost;
    const bool others_wait = round.notified_waiters() > 0;
    ctx_.hit(yes ? holds > 0 ? probe::hold_released : probe::released : lost ? probe::release_lost : probe::no_quorum);
    if (holds == 0) stop_top_ups(c.nonce, 0);
    if (!handed_over) on_local_release(c.resources, others_wait);
    answer_client(c, {yes    ? outcome::done
                      : lost ? outcome::lost
                             : outcome::no_quorum,
                      c.nonce, c.token, milliseconds{0}, holds});
}

}  // namespace sim
