#include <sim/parts/sim_gateway.hpp>

#include <proto/validity.hpp>

#include <bit>
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

node_reply only(reply_status status) {
    node_reply r;
    r.status = status;
    return r;
}

constexpr node_index at_index(std::uint32_t n) {
    return static_cast<node_index>(n);
}

command_kind command_of(call_kind kind) {
    switch (kind) {
        case call_kind::acquire:
            return command_kind::acquire;
        case call_kind::renew:
            return command_kind::renew;
        case call_kind::inspect:
            return command_kind::inspect;
        case call_kind::release:
            return command_kind::release;
    }
    return command_kind::acquire;
}

}  // namespace

sim_gateway::sim_gateway(context& ctx, network& net, epoch_register& epochs, checkers& check, callers& clients,
                         std::vector<sim_node>& nodes, std::uint32_t index, drifting_clock clock)
    : ctx_(ctx), net_(net), check_(check), clients_(clients), nodes_(nodes), index_(index), clock_(clock) {
    for (std::uint32_t n = 0; n < ctx.set.nodes; ++n)
        links_.push_back(std::make_unique<sim_link>(ctx, net, epochs, *this, index, n));
}

void sim_gateway::start() {
    runs_ = true;
    ++incarnation_;
    paused_until_ = sim_time{0};
    for (auto& link : links_)
        link->open();
}

void sim_gateway::crash() {
    if (attempts_.size() > free_.size()) ctx_.hit(probe::gateway_crashed_with_attempts);
    runs_ = false;
    net_.gateway_crashed(index_);
    for (auto& link : links_)
        link->forget();
    attempts_.clear();
    free_.clear();
    if (!waiters_.empty()) ctx_.hit(probe::gateway_crashed_with_waiters);
    waiters_.clear();
    queues_.fill(std::nullopt);
    highest_ = {};
}

void sim_gateway::pause_until(sim_time until) {
    if (attempts_.size() > free_.size() && until - ctx_.now() > ctx_.set.ttl_low)
        ctx_.hit(probe::gateway_paused_past_ttl);
    paused_until_ = std::max(paused_until_, until);
}

std::uint64_t sim_gateway::highest_epoch() const {
    std::uint64_t highest = 0;
    for (const auto& link : links_)
        highest = std::max(highest, link->epoch_seen());
    return highest;
}

std::uint64_t sim_gateway::hint_for(resource_set set) const {
    // No counter is below its node's base: from the highest of those on, all nodes count in step.
    std::uint64_t highest = highest_epoch() << 32;
    for_each_resource(set, [&](std::uint32_t r) { highest = std::max(highest, highest_[ctx_.set.bucket_of[r]]); });
    return highest + 1;
}

void sim_gateway::remember(resource_set set, std::uint64_t token) {
    for_each_resource(set, [&](std::uint32_t r) {
        std::uint64_t& known = highest_[ctx_.set.bucket_of[r]];
        known = std::max(known, token);
    });
}

// --- calls

std::uint32_t sim_gateway::new_attempt(const call& c, command_kind what) {
    std::uint32_t at = 0;
    if (!free_.empty()) {
        at = free_.back();
        free_.pop_back();
        attempts_[at] = attempt(c, what, ctx_.set.nodes);
    } else {
        at = static_cast<std::uint32_t>(attempts_.size());
        attempts_.emplace_back(c, what, ctx_.set.nodes);
    }
    attempt& a = attempts_[at];
    a.before = check_.complete_by_now();
    a.started = local_time();
    request& q = a.built;
    q.resources = c.resources;
    q.attempt = at;
    q.ttl = c.ttl;
    q.renewals_max = ctx_.set.renewals_max;
    q.hold_max = ctx_.set.hold_max;
    q.nonce = c.nonce;
    q.hold = c.hold;
    q.token = c.token;
    q.by = c.by;
    q.mark = mark();
    return at;
}

void sim_gateway::called(const call& c) {
    if (c.kind == call_kind::acquire) return take(c);
    if (c.kind == call_kind::release) return release(c);
    if (c.kind == call_kind::inspect) {
        for_each_resource(c.resources, [&](std::uint32_t r) {
            if (check_.complete_by_now()[r] > c.token) ctx_.hit(probe::inspected_after_newer_grant);
        });
    }
    start_round(c, command_of(c.kind));
}

void sim_gateway::start_attempt(const call& c, ticket for_whom, lease_of_before previous, const call* gives_back) {
    const std::uint32_t at = new_attempt(c, command_kind::acquire);
    attempt& a = attempts_[at];
    a.for_whom = for_whom;
    if (gives_back) a.gives_back = *gives_back;
    request& q = a.built;
    q.nonce = q.hold = ctx_.chance.next() | 1;
    q.previous = previous.nonce;
    q.previous_hold = previous.hold;
    q.key = c.key;
    if (c.wait == milliseconds{0}) q.mark = 0;
    // Whoever waits behind it here has to be told when the lease ends at another gateway.
    const auto& behind = queues_[static_cast<std::uint32_t>(std::countr_zero(c.resources))];
    if (behind && behind->size() > 1) q.left_mark = mark();
    q.hint = ctx_.set.hints ? hint_for(c.resources) : 0;
    if (q.hint > (highest_epoch() << 32) + 1) ctx_.hit(probe::hint_used);
    ctx_.note("attempt begins", index_, q.nonce, c.resources, q.hint);
    perform(at, a.taking.start());
    settle(at);
}

void sim_gateway::start_round(const call& c, command_kind what) {
    begin_round(new_attempt(c, what));
}

void sim_gateway::begin_round(std::uint32_t at) {
    attempt& a = attempts_[at];
    ctx_.note("round begins", index_, a.built.nonce, static_cast<std::uint64_t>(a.what), a.built.token);
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
        const reply_status sent = send(at, n, a.what, a.built.token);
        if (sent != reply_status::ok) round_answered(at, n, only(sent));
    }
    settle(at);
}

reply_status sim_gateway::send(std::uint32_t at, std::uint32_t node, command_kind command, std::uint64_t token) {
    attempt& a = attempts_[at];
    request q = a.built;
    q.command = command;
    q.token = token;
    const reply_status sent = links_[node]->send(q);
    if (sent == reply_status::ok) ++a.awaited;
    return sent;
}

void sim_gateway::on_reply(const request& asked, std::uint32_t node, const node_reply& told, bool last) {
    const std::uint32_t at = asked.attempt;
    attempt& a = attempts_[at];
    const node_reply& r = told;
    if (last) --a.awaited;
    if (r.status == reply_status::broken) a.clean = false;
    if (r.status == reply_status::timeout) a.timed_out = true;
    switch (asked.command) {
        case command_kind::acquire:
        case command_kind::confirm:
            acquire_answered(at, node, asked.command, asked.token, r);
            remember(a.built.resources, value_of(a.taking.highest_heard()));  // of those that come late too
            break;
        default:
            // The answer to a top-up or an undo changes nothing.
            if (asked.command == a.what) round_answered(at, node, r);
            if (a.undone && last && r.status == reply_status::not_admitted) a.clean = false;
            break;
    }
    settle(at);
}

/// Frees what nobody waits for any more, and looks whether a failed attempt left anything behind.
void sim_gateway::settle(std::uint32_t at) {
    if (at >= attempts_.size()) return;
    attempt& a = attempts_[at];
    if (a.awaited > 0 || !a.told || !a.in_use) return;
    if (a.undone && a.clean && !check_.was_entered(a.built.nonce)) {
        ctx_.hit(probe::undone_cleanly);
        for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
            if (a.undone_in[n] != 0 && a.undone_in[n] != nodes_[n].run()) continue;  // another life of the node
            if (nodes_[n].replaced_since(a.undone_at)) continue;                     // or older data
            for_each_resource(a.built.resources, [&](std::uint32_t r) {
                if (nodes_[n].holder_of(r) == a.built.nonce)
                    check_.key_left(n, r, a.built.nonce, "the attempt failed and was undone on every node");
            });
        }
    }
    a.in_use = false;
    free_.push_back(at);
}

void sim_gateway::tell(const call& c, const call_answer& answer) {
    ctx_.note("client is told", c.client, static_cast<std::uint64_t>(answer.what), answer.token,
              static_cast<std::uint64_t>(answer.left.count()));
    if (clients_.waits_for(c)) clients_.answer(c, answer);
}

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
