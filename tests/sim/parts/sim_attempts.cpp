#include <sim/parts/sim_gateway.hpp>

#include <proto/validity.hpp>

#include <utility>

namespace sim {
namespace {

using lockcore::acquire;
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

// --- ACQUIRE, as acquire_attempt and shard::try_once do it

void sim_gateway::perform(std::uint32_t at, acquire::step step) {
    while (step.to.any()) {
        attempt& a = attempts_[at];
        const bool confirms = step.kind == command_kind::confirm;
        if (confirms) {
            ctx_.hit(a.complete ? probe::confirm_after_grant : probe::confirm_round);
            a.confirmed = true;
        }
        lockcore::node_set answered;
        std::array<node_reply, lockcore::nodes_max> answers{};
        for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
            if (!step.to[n]) continue;
            const bool taken_for_granted = confirms && (ctx_.broken(mutation::skip_confirm) ||
                                                        (a.stale_at[n] != 0 && a.stale_at[n] == value_of(step.token)));
            answers[n].status = taken_for_granted ? reply_status::ok : send(at, n, step.kind, value_of(step.token));
            answered[n] = taken_for_granted || answers[n].status != reply_status::ok;
        }
        acquire::step next;
        for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
            if (!answered[n]) continue;
            if (!confirms) note_previous(attempts_[at], n, answers[n]);
            const acquire::step s = confirms ? a.taking.confirm_answered(at_index(n), step.token, answers[n])
                                             : a.taking.acquire_answered(at_index(n), answers[n]);
            if (s.to.any()) next = s;
        }
        step = next;
    }
    attempt& a = attempts_[at];
    if (a.taking.outcome() == acquire::verdict::granted && !a.complete) {
        a.complete = true;
        check_.grant_complete(a.built.resources, a.built.nonce, value_of(a.taking.token()), a.before);
    }
    if (a.taking.outcome() != acquire::verdict::pending && !a.told) acquire_done(at);
}

void sim_gateway::acquire_answered(std::uint32_t at, std::uint32_t node, command_kind command, std::uint64_t token,
                                   node_reply r) {
    attempt& a = attempts_[at];
    if (a.first_reply == microseconds{0}) a.first_reply = local_time();
    const std::uint64_t chosen = value_of(a.taking.token());
    if (command == command_kind::acquire && r.status == reply_status::ok && chosen != 0 && r.value > chosen &&
        ctx_.broken(mutation::late_higher_counts)) {
        r.value = chosen;
    }
    if (command == command_kind::acquire && r.status == reply_status::timeout &&
        ctx_.broken(mutation::acquire_over_silence)) {
        r = only(reply_status::ok);
        r.value = value_of(a.taking.highest_heard());
    }
    if (r.status == reply_status::stale && ctx_.broken(mutation::stale_counts)) a.stale_at[node] = r.value;
    if (command == command_kind::acquire) note_previous(a, node, r);
    const std::size_t stamps = a.taking.stamps();
    const acquire::step next = command == command_kind::acquire
                                   ? a.taking.acquire_answered(at_index(node), r)
                                   : a.taking.confirm_answered(at_index(node), fencing_token{token}, r);
    count_probes(a, chosen, command, r);
    if (a.complete && command == command_kind::confirm && a.taking.stamps() > stamps)
        ctx_.hit(probe::late_confirm_counted);
    perform(at, next);
}

void sim_gateway::count_probes(const attempt& a, std::uint64_t token_before, command_kind command,
                               const node_reply& r) {
    const std::uint64_t token = value_of(a.taking.token());
    if (token_before != 0 && token > token_before)
        ctx_.hit(r.status == reply_status::stale ? probe::raised_by_stale : probe::raised_to_nodes_ahead);
    if (command != command_kind::acquire || r.status != reply_status::ok || token_before == 0) return;
    for_each_resource(a.built.resources, [&](std::uint32_t resource) {
        if (a.complete && check_.complete_by_now()[resource] > token) ctx_.hit(probe::late_reply_after_newer_grant);
    });
    ctx_.hit(r.value == token_before  ? probe::late_reply_equal
             : r.value > token_before ? probe::late_reply_higher
                                      : probe::late_reply_lower);
}

/// As acquire_attempt::note_previous.
void sim_gateway::note_previous(attempt& a, std::uint32_t node, const node_reply& r) {
    if (a.built.previous == 0) return;
    if (r.status != reply_status::ok && r.status != reply_status::kept) release_previous(a, node);
    if (!a.gives_back) return;
    node_reply about = only(r.status);
    if (r.status == reply_status::kept) {
        about.status = reply_status::ok;
        about.text = r.text;
    } else if ((r.status == reply_status::ok && !r.took_over) || r.status == reply_status::held ||
               r.status == reply_status::own) {
        about.status = reply_status::lost;
    }
    if (a.previous.answered(at_index(node), about) == majority_round::verdict::pending) return;
    const call c = *std::exchange(a.gives_back, std::nullopt);
    if (a.previous.holds() > 0) ctx_.hit(probe::hand_over_kept);
    release_done(c, a.previous, true);
}

/// Behind the attempt that was to take it over: where that was not done, it would stay until its ttl.
void sim_gateway::release_previous(const attempt& a, std::uint32_t node) {
    const request q = a.built;
    const std::uint32_t at = new_attempt(a.asked_for, command_kind::release);
    attempts_[at].built.nonce = q.previous;
    attempts_[at].built.hold = q.previous_hold;
    attempts_[at].told = true;
    ctx_.hit(probe::previous_ended);
    (void)send(at, node, command_kind::release, 0);
    settle(at);
}

void sim_gateway::acquire_done(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.told = true;
    const call c = a.asked_for;
    const ticket for_whom = a.for_whom;
    const bool several = (a.built.resources & (a.built.resources - 1)) != 0;
    if (a.taking.outcome() == acquire::verdict::granted) {
        microseconds spent = local_time() - a.started;
        if (ctx_.broken(mutation::no_final_validity)) spent = a.first_reply - a.started;
        if (ctx_.broken(mutation::validity_from_answer)) spent = microseconds{0};
        auto left = std::chrono::floor<milliseconds>(lockcore::validity(a.built.ttl, spent));
        if (ctx_.broken(mutation::no_drift_allowance)) left = std::chrono::floor<milliseconds>(a.built.ttl - spent);
        const bool wanted = clients_.waits_for(c);
        if (wanted && left > milliseconds{0}) {
            if (!a.confirmed) ctx_.hit(probe::granted_in_one_round);
            if (ctx_.set.nodes > 1 && a.taking.stamps() == lockcore::majority_of(ctx_.set.nodes))
                ctx_.hit(probe::thin_majority);
            if (several) ctx_.hit(probe::several_granted);
            if (ctx_.set.buckets < ctx_.set.resources) ctx_.hit(probe::bucket_shared_by_grants);
            if (a.built.previous != 0 && for_whom != 0) ctx_.hit(probe::handed_to_waiter);
            return finished(c, for_whom,
                            {outcome::done, a.built.nonce, value_of(a.taking.token()), left, 1, a.built.hold});
        }
        ctx_.hit(wanted ? probe::validity_used_up : probe::unwanted_grant_undone);
        undo(at);
        return finished(c, for_whom, {wanted ? outcome::no_quorum : outcome::cancelled});
    }
    if (several) ctx_.hit(probe::several_refused);
    undo(at);
    const bool locked = a.taking.outcome() == acquire::verdict::locked;
    ctx_.hit(locked ? probe::locked : probe::no_quorum);
    const milliseconds left = a.taking.remaining();
    if (locked) {
        const auto own = a.taking.own_lease();
        if (own && enter_again(c, for_whom, *own, false, left)) return;
    }
    finished(c, for_whom, {locked ? outcome::locked : outcome::no_quorum, 0, 0, left});
}

void sim_gateway::undo(std::uint32_t at) {
    attempt& a = attempts_[at];
    // Whoever repeats the request may have been told of it by now, or will be; else it runs out.
    const bool may_be_repeated = a.asked_for.key.who != 0 && a.taking.outcome() != acquire::verdict::locked;
    if (may_be_repeated && !ctx_.broken(mutation::undo_forgets_repeats)) return ctx_.hit(probe::left_for_repeat);
    a.undone = true;
    a.undone_at = ctx_.now();
    if (ctx_.broken(mutation::no_undo)) return;
    if (a.timed_out) ctx_.hit(probe::undo_after_timeout);
    const lockcore::node_set targets = a.taking.undo_targets();
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
        if (!targets[n]) continue;
        a.undone_in[n] = links_[n]->run();
        // Its own hold, and no more: the same owner may have entered the lease again meanwhile.
        a.built.undone = true;
        a.built.whole_lease = ctx_.broken(mutation::undo_drops_holds);
        if (send(at, n, command_kind::release, 0) != reply_status::ok) a.clean = false;
    }
}

// --- RENEW, HOLD, INSPECT, RELEASE, as round_attempt and the shard do them

void sim_gateway::round_answered(std::uint32_t at, std::uint32_t node, node_reply r) {
    attempt& a = attempts_[at];
    if (a.what == command_kind::look) {
        const bool decided = a.survey.answered(at_index(node), r) != lockcore::survey::verdict::pending;
        if (decided && !a.told) survey_done(at);
        return;
    }
    const bool renews = a.what == command_kind::renew;
    if (renews && r.status == reply_status::timeout && ctx_.broken(mutation::renew_over_silence))
        r.status = reply_status::ok;
    const auto verdict = a.round.answered(at_index(node), r);
    const bool renewed = renews && verdict == majority_round::verdict::yes;
    if (renewed && a.may_top_up && local_time() - a.started < a.built.ttl / 4) top_up(at);
    if (verdict != majority_round::verdict::pending && !a.told) round_done(at);
}

void sim_gateway::top_up(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.built.renewals = static_cast<std::uint32_t>(a.round.value());
    a.built.closed = a.round.closed();
    a.built.held = a.round.held();
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
        if (a.topped_up[n] || a.round.answer_of(at_index(n)) != reply_status::lost) continue;
        a.topped_up.set(n);
        (void)send(at, n, command_kind::top_up, a.asked_for.token);
    }
}

void sim_gateway::round_done(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.told = true;
    if (a.what == command_kind::undo) return;
    if (a.what == command_kind::release) {
        return release_done(a.asked_for, a.round, false);
    }
    const call c = a.asked_for;
    // Asked for by one who wants to take it.
    if (c.kind == call_kind::acquire) return entered(at);
    call_answer out{outcome::no_quorum, c.nonce, c.token, milliseconds{0}};
    switch (a.round.outcome()) {
        case majority_round::verdict::yes: {
            out.what = outcome::done;
            const bool inspects = c.kind == call_kind::inspect;
            check_.alive_seen(c.resources, c.token, a.before, inspects ? "INSPECT" : "RENEW");
            const milliseconds lasts = inspects ? a.round.remaining() : c.ttl;
            out.left = std::chrono::floor<milliseconds>(lockcore::validity(lasts, local_time() - a.started));
            out.holds = static_cast<std::uint32_t>(a.round.holds());
            if (out.left <= milliseconds{0}) out.what = outcome::too_late;
            if (out.what == outcome::done) ctx_.hit(inspects ? probe::inspected_yes : probe::renewed);
            break;
        }
        case majority_round::verdict::lost:
            out.what = outcome::lost;
            ctx_.hit(c.kind == call_kind::renew ? probe::renew_lost : probe::inspected_lost);
            break;
        case majority_round::verdict::exhausted:
            out.what = outcome::exhausted;
            ctx_.hit(probe::renewals_exhausted);
            break;
        default:
            if (c.kind == call_kind::renew) ctx_.hit(probe::renew_no_quorum);
            break;
    }
    tell(c, out);
}

/// `handed`: one round ended this lease and began the next.
void sim_gateway::release_done(const call& c, const majority_round& round, bool handed) {
    const bool yes = round.outcome() == majority_round::verdict::yes;
    const std::uint32_t holds = yes ? static_cast<std::uint32_t>(round.holds()) : 0;
    const bool lost = round.outcome() == majority_round::verdict::lost;
    const bool others_wait = round.told() > 0;
    ctx_.hit(yes ? holds > 0 ? probe::hold_released : probe::released : lost ? probe::release_lost : probe::no_quorum);
    if (holds == 0) stop_top_ups(c.nonce, 0);
    if (!handed) given_back(c.resources, others_wait);
    tell(c, {yes    ? outcome::done
             : lost ? outcome::lost
                    : outcome::no_quorum,
             c.nonce, c.token, milliseconds{0}, holds});
}

}  // namespace sim
