#include <sim/parts/sim_gateway.hpp>

#include <proto/validity.hpp>

#include <bit>

// Taking leases: by those who hold them already, and by those who wait; as lockcore/runtime/shard_waiting.cpp does it.

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::majority_round;
using lockcore::reply_status;
using outcome = call_answer::outcome;

constexpr std::uint32_t home_of(resource_set set) {
    return static_cast<std::uint32_t>(std::countr_zero(set));
}

std::string hex(std::uint64_t bits, std::size_t digits) {
    std::string out(digits, '0');
    for (std::size_t i = digits; i-- > 0; bits >>= 4)
        out[i] = "0123456789abcdef"[bits & 15];
    return out;
}

sim_nonce nonce_from(const lockcore::nonce& n) {
    return std::stoull(std::string(n.str().substr(16)), nullptr, 16);
}

hold_number number_from(const lockcore::hold_id& id) {
    return std::stoull(std::string(id.str()), nullptr, 16);
}

/// As the nodes write it.
lockcore::holder written(const identity& by) {
    return {"p" + std::to_string(by.principal), by.owner == 0 ? std::string() : "o" + std::to_string(by.owner)};
}

bool worth_waiting(outcome what) {
    return what == outcome::locked || what == outcome::no_quorum;
}

}  // namespace

void sim_gateway::take(const call& c) {
    if (c.previous != 0) return start_attempt(c, 0, {c.previous, c.previous_hold}, nullptr);
    if (!queues_[home_of(c.resources)]) return start_attempt(c, 0, {}, nullptr);
    // Nobody overtakes those who wait, but who holds the lease already need not wait for itself.
    if (c.by.owner == 0 && c.key.who == 0) return join_or_refuse(c);
    const std::uint32_t at = new_attempt(c, command_kind::look);
    attempts_[at].built.resources = static_cast<resource_set>(1U << home_of(c.resources));
    begin_round(at);
}

void sim_gateway::survey_done(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.told = true;
    const call c = a.asked_for;
    if (a.survey.outcome() == lockcore::survey::verdict::found) {
        const lockcore::lease_record record = *a.survey.lease();
        resource_set named = static_cast<resource_set>(1U << home_of(c.resources));
        for (const auto& r : record.resources)
            named |= static_cast<resource_set>(1U << (r.str()[1] - '0'));
        const bool same = named == c.resources && record.by == written(c.by);
        if (same && enter_again(c, 0, record, true, milliseconds{0})) return;
    }
    join_or_refuse(c);
}

/// Another hold, or an old answer again. Out: false if it is neither.
bool sim_gateway::enter_again(const call& c, ticket for_whom, const lockcore::lease_record& own,
                              bool instead_of_waiting, milliseconds locked_for) {
    using match = lockcore::idempotency_mark::match;
    lockcore::idempotency_mark key;
    if (c.key.who != 0) key.text = hex(c.key.who, 16) + hex(c.key.what, 8);
    const auto found = key.found_in(own.keys);
    if (found.what == match::none && c.by.owner == 0) return false;
    const bool repeats = found.what == match::same;
    if (repeats ? own.holds.released(found.hold) : own.holds.closed()) return false;
    const std::uint32_t at = new_attempt(c, repeats ? command_kind::inspect : command_kind::hold);
    attempt& a = attempts_[at];
    a.for_whom = for_whom;
    a.instead_of_waiting = instead_of_waiting;
    a.locked_for = locked_for;
    a.built.nonce = nonce_from(own.attempt);
    a.built.token = value_of(own.token);
    a.built.hold = repeats ? number_from(found.hold) : ctx_.chance.next() | 1;
    if (!repeats) a.built.key = c.key;
    if (!repeats) check_.entering(a.built.nonce);
    begin_round(at);
    return true;
}

/// What came of HOLD or INSPECT for one who asked again.
void sim_gateway::entered(std::uint32_t at) {
    attempt& a = attempts_[at];
    const call c = a.asked_for;
    const bool repeats = a.what == command_kind::inspect;
    const bool enough = ctx_.broken(mutation::hold_on_one) && !repeats && a.round.yes() > 0;
    const bool yes = a.round.outcome() == majority_round::verdict::yes || enough;
    const milliseconds lasts = repeats ? a.round.remaining() : c.ttl;
    const auto left = std::chrono::floor<milliseconds>(lockcore::validity(lasts, local_time() - a.started));
    const bool wanted = clients_.waits_for(c);
    if (yes) {
        check_.alive_seen(c.resources, a.built.token, a.before, repeats ? "INSPECT" : "HOLD");
        check_.seen_complete(c.resources, a.built.nonce, a.built.token);
    }
    if (yes && left > milliseconds{0} && (wanted || repeats)) {
        ctx_.hit(repeats ? probe::repeat_answered : probe::hold_added);
        return finished(c, a.for_whom,
                        {outcome::done, a.built.nonce, a.built.token, left, static_cast<std::uint32_t>(a.round.holds()),
                         a.built.hold});
    }
    if (!repeats) take_hold_back(at);
    if (!wanted) return finished(c, a.for_whom, {outcome::cancelled});
    switch (a.round.outcome()) {
        case majority_round::verdict::lost:
            return not_entered(a);
        case majority_round::verdict::exhausted:
            return finished(c, a.for_whom, {outcome::exhausted});
        default:
            if (repeats && yes) return not_entered(a);
            return finished(c, a.for_whom, {outcome::no_quorum});
    }
}

void sim_gateway::not_entered(const attempt& a) {
    if (a.instead_of_waiting) return join_or_refuse(a.asked_for);
    finished(a.asked_for, a.for_whom, {outcome::locked, 0, 0, a.locked_for});
}

/// RELEASE of the hold, on every node: its tombstone keeps a HOLD out that comes later.
void sim_gateway::take_hold_back(std::uint32_t at) {
    attempt& a = attempts_[at];
    ctx_.hit(probe::hold_taken_back);
    a.built.undone = !ctx_.broken(mutation::hold_leaves_key);
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n)
        (void)send(at, n, command_kind::release, 0);
}

void sim_gateway::finished(const call& c, ticket for_whom, const call_answer& answer) {
    if (for_whom == 0) {
        if (c.wait == milliseconds{0} || c.previous != 0 || !worth_waiting(answer.what)) return tell(c, answer);
        return join_or_refuse(c);
    }
    const auto found = waiters_.find(for_whom);
    if (found == waiters_.end()) return;
    waiter& w = found->second;
    w.trying = false;
    if (!worth_waiting(answer.what)) {
        if (answer.what == outcome::done) ctx_.hit(probe::waiter_granted);
        leave(for_whom, answer.what == outcome::done);
        return tell(c, answer);
    }
    w.last_left = answer.left;
    w.until = local_time() + queues_[home_of(c.resources)]->refused(answer.left, ctx_.chance.next());
    poll(for_whom);
}

// --- waiting

void sim_gateway::join_or_refuse(const call& c) {
    if (c.wait == milliseconds{0}) return tell(c, {outcome::locked});
    auto& queue = queues_[home_of(c.resources)];
    if (!queue)
        queue.emplace(lockcore::wait_queue::limits{lockcore::majority_of(ctx_.set.nodes), ctx_.set.handoff_max});
    const ticket t = ++last_ticket_;
    queue->join(t);
    waiter& w = waiters_[t];
    w.asked = c;
    w.until = local_time();
    w.give_up_at = w.until + c.wait;
    if (queue->size() == 1) {
        // The try just made was refused; it left its mark, so that the end of that lease will be told.
        w.until += queue->refused(milliseconds{0}, ctx_.chance.next());
    } else {
        ctx_.hit(probe::waited_behind_another);
    }
    poll(t);
}

/// What the one who waits does next: sleep on, try, or give up.
void sim_gateway::poll(ticket t) {
    const auto found = waiters_.find(t);
    if (found == waiters_.end() || found->second.trying) return;
    waiter& w = found->second;
    const std::uint32_t home = home_of(w.asked.resources);
    const bool first = queues_[home]->head() == t;
    const microseconds now = local_time();
    w.until = first ? std::min(w.until, w.give_up_at) : w.give_up_at;
    if (ctx_.broken(mutation::waiters_never_wake)) {
        w.woken = false;
        w.until = w.give_up_at;
    }
    if (!w.woken && now < w.until) {
        ctx_.events.in(
            clock_.real(w.until - now),
            {.kind = event_kind::waiter_wakes, .who = static_cast<std::uint8_t>(index_), .a = t, .b = ++w.planned});
        return;
    }
    w.woken = false;
    const call c = w.asked;
    if (!clients_.waits_for(c)) {
        ctx_.hit(probe::waiter_went_away);
        leave(t, false);
        return;
    }
    if (now >= w.give_up_at) {
        ctx_.hit(probe::waiter_timed_out);
        const milliseconds left = w.last_left;
        leave(t, false);
        return tell(c, {outcome::locked, 0, 0, left});
    }
    if (!first) return poll(t);
    w.trying = true;
    start_attempt(c, t, {}, nullptr);
}

void sim_gateway::waiter_wakes(ticket t, std::uint32_t serial) {
    const auto found = waiters_.find(t);
    if (found != waiters_.end() && found->second.planned == serial) poll(t);
}

void sim_gateway::leave(ticket t, bool granted) {
    const std::uint32_t home = home_of(waiters_.at(t).asked.resources);
    waiters_.erase(t);
    if (ctx_.broken(mutation::leaver_keeps_place) && !granted) return;
    const bool next = queues_[home]->leave(t);
    if (queues_[home]->empty()) {
        queues_[home].reset();
    } else if (next) {
        let_head_look(home, granted ? lockcore::wait_queue::look_again : milliseconds{0});
    }
}

void sim_gateway::let_head_look(std::uint32_t home, milliseconds pause) {
    if (!queues_[home]) return;
    const auto head = static_cast<ticket>(queues_[home]->head());
    const auto found = waiters_.find(head);
    if (found == waiters_.end()) return;
    waiter& w = found->second;
    if (pause <= milliseconds{0}) {
        w.woken = true;
    } else {
        w.until = std::min(w.until, local_time() + pause);
    }
    poll(head);
}

void sim_gateway::dropped(const call& c) {
    for (auto& [t, w] : waiters_) {
        if (w.asked.client != c.client || w.asked.generation != c.generation) continue;
        w.woken = true;
        return poll(t);
    }
}

// --- giving back

void sim_gateway::release(const call& c) {
    stop_top_ups(c.nonce, c.hold);
    // Where somebody waits here for just this, one round ends the one lease and begins the next (HAND-OVER).
    auto& queue = queues_[home_of(c.resources)];
    if (queue) {
        const auto head = static_cast<ticket>(queue->head());
        const auto found = waiters_.find(head);
        const bool ready = found != waiters_.end() && !found->second.trying &&
                           found->second.asked.resources == c.resources && queue->takes_over();
        if (ready) {
            found->second.trying = true;
            const call next = found->second.asked;
            return start_attempt(next, head, {c.nonce, c.hold}, &c);
        }
    }
    start_round(c, command_kind::release);
}

void sim_gateway::given_back(resource_set set, bool others_wait) {
    for_each_resource(set, [&](std::uint32_t r) {
        if (queues_[r]) let_head_look(r, queues_[r]->given_back(others_wait));
        for (std::uint32_t home = 0; home < ctx_.set.resources; ++home) {
            if (home == r || !queues_[home]) continue;
            const bool also = std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& entry) {
                const resource_set wanted = entry.second.asked.resources;
                return home_of(wanted) == home && (wanted >> r & 1);
            });
            if (also) let_head_look(home, milliseconds{0});
        }
    });
}

void sim_gateway::told_of_end(std::uint32_t node, const wake& w) {
    if (w.mark != mark()) return;  // of a gateway that died
    ctx_.hit(probe::told_of_end);
    for (std::uint32_t home = 0; home < ctx_.set.resources; ++home) {
        if (!queues_[home]) continue;
        const bool wanted = home == w.resource || std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& entry) {
                                const resource_set set = entry.second.asked.resources;
                                return home_of(set) == home && (set >> w.resource & 1);
                            });
        if (!wanted) continue;
        const auto ended = lockcore::nonce::from_bits(0, w.ended);
        let_head_look(home, queues_[home]->told(static_cast<lockcore::node_index>(node), ended));
    }
}

/// Renewals of it with answers still to come put it back nowhere.
void sim_gateway::stop_top_ups(sim_nonce nonce, hold_number hold) {
    for (attempt& a : attempts_) {
        const bool same = a.built.nonce == nonce && (hold == 0 || a.built.hold == hold);
        if (a.in_use && a.what == command_kind::renew && same) a.may_top_up = false;
    }
}

}  // namespace sim
