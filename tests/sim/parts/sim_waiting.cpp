#include <sim/parts/sim_gateway.hpp>

#include <proto/validity.hpp>

#include <bit>

// Re-entry by holders and waiting in queues, as in lockcore/runtime/shard_waiting.cpp.

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::majority_round;
using lockcore::reply_status;
using outcome = call_answer::outcome;

constexpr std::uint32_t queue_key_of(resource_set set) {
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

/// Converts a holder to the form that the nodes store.
lockcore::holder to_lease_holder(const identity& holder) {
    return {"p" + std::to_string(holder.principal),
            holder.owner == 0 ? std::string() : "o" + std::to_string(holder.owner)};
}

bool allows_waiting(outcome result) {
    return result == outcome::locked || result == outcome::no_quorum;
}

}  // namespace

void sim_gateway::handle_acquire(const call& c) {
    if (c.previous != 0) return start_attempt(c, 0, {c.previous, c.previous_hold}, nullptr);
    if (!queues_[queue_key_of(c.resources)]) return start_attempt(c, 0, {}, nullptr);
    // A new call does not overtake the waiters, unless its holder has the lease already, which LOOK finds out.
    if (c.holder.owner == 0 && c.key.key_hash == 0) return join_or_refuse(c);
    const std::uint32_t at = new_attempt(c, command_kind::look);
    attempts_[at].base_request.resources = static_cast<resource_set>(1U << queue_key_of(c.resources));
    begin_round(at);
}

void sim_gateway::survey_done(std::uint32_t at) {
    attempt& a = attempts_[at];
    a.decided = true;
    const call c = a.client_call;
    if (a.survey.outcome() == lockcore::survey::verdict::found) {
        const lockcore::lease_record record = *a.survey.lease();
        resource_set lease_resources = static_cast<resource_set>(1U << queue_key_of(c.resources));
        for (const auto& r : record.resources)
            lease_resources |= static_cast<resource_set>(1U << (r.str()[1] - '0'));
        const bool same = lease_resources == c.resources && record.holder == to_lease_holder(c.holder);
        if (same && reenter_lease(c, 0, record, true, milliseconds{0})) return;
    }
    join_or_refuse(c);
}

/// Requests another hold of the caller's lease, or inspects the lease for a repeated request.
/// Out: false if the call is neither.
bool sim_gateway::reenter_lease(const call& c, ticket waiter_ticket, const lockcore::lease_record& own,
                                bool before_queueing, milliseconds locked_remaining) {
    using match = lockcore::idempotency_digest::match;
    lockcore::idempotency_digest key;
    if (c.key.key_hash != 0) key.text = hex(c.key.key_hash, 16) + hex(c.key.request_hash, 8);
    const auto found = key.find_in(own.keys);
    if (found.result == match::none && c.holder.owner == 0) return false;
    const bool repeats = found.result == match::same;
    if (repeats ? own.holds.is_released(found.hold) : own.holds.is_closed()) return false;
    const std::uint32_t at = new_attempt(c, repeats ? command_kind::inspect : command_kind::hold);
    attempt& a = attempts_[at];
    a.waiter_ticket = waiter_ticket;
    a.before_queueing = before_queueing;
    a.locked_remaining = locked_remaining;
    a.base_request.nonce = nonce_from(own.attempt_id);
    a.base_request.token = value_of(own.token);
    a.base_request.hold = repeats ? number_from(found.hold) : ctx_.rng.next() | 1;
    if (!repeats) a.base_request.key = c.key;
    if (!repeats) check_.hold_requested(a.base_request.nonce);
    begin_round(at);
    return true;
}

/// Evaluates the HOLD or INSPECT of a re-entry or a repeated request.
void sim_gateway::on_reentered(std::uint32_t at) {
    attempt& a = attempts_[at];
    const call c = a.client_call;
    const bool repeats = a.command == command_kind::inspect;
    const bool enough = ctx_.is_active(mutation::hold_on_one) && !repeats && a.round.yes() > 0;
    const bool yes = a.round.outcome() == majority_round::verdict::yes || enough;
    const milliseconds lasts = repeats ? a.round.remaining() : c.ttl;
    const auto left = std::chrono::floor<milliseconds>(lockcore::validity(lasts, local_time() - a.started));
    const bool wanted = clients_.is_waiting_for(c);
    if (yes) {
        check_.lease_reported_alive(c.resources, a.base_request.token, a.before, repeats ? "INSPECT" : "HOLD");
        check_.lease_seen_on_majority(c.resources, a.base_request.nonce, a.base_request.token);
    }
    if (yes && left > milliseconds{0} && (wanted || repeats)) {
        ctx_.hit(repeats ? probe::repeat_answered : probe::hold_added);
        return finish_call(c, a.waiter_ticket,
                           {outcome::done, a.base_request.nonce, a.base_request.token, left,
                            static_cast<std::uint32_t>(a.round.holds()), a.base_request.hold});
    }
    if (!repeats) undo_hold(at);
    if (!wanted) return finish_call(c, a.waiter_ticket, {outcome::cancelled});
    switch (a.round.outcome()) {
        case majority_round::verdict::lost:
            return on_reentry_refused(a);
        case majority_round::verdict::exhausted:
            return finish_call(c, a.waiter_ticket, {outcome::exhausted});
        default:
            if (repeats && yes) return on_reentry_refused(a);
            return finish_call(c, a.waiter_ticket, {outcome::no_quorum});
    }
}

void sim_gateway::on_reentry_refused(const attempt& a) {
    if (a.before_queueing) return join_or_refuse(a.client_call);
    finish_call(a.client_call, a.waiter_ticket, {outcome::locked, 0, 0, a.locked_remaining});
}

/// Releases the hold on every node; its tombstone refuses a HOLD that arrives later.
void sim_gateway::undo_hold(std::uint32_t at) {
    attempt& a = attempts_[at];
    ctx_.hit(probe::hold_undone);
    a.base_request.undone = !ctx_.is_active(mutation::undone_hold_keeps_key);
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n)
        (void)send(at, n, command_kind::release, 0);
}

void sim_gateway::finish_call(const call& c, ticket waiter_ticket, const call_answer& answer) {
    if (waiter_ticket == 0) {
        if (c.wait == milliseconds{0} || c.previous != 0 || !allows_waiting(answer.result))
            return answer_client(c, answer);
        return join_or_refuse(c);
    }
    const auto found = waiters_.find(waiter_ticket);
    if (found == waiters_.end()) return;
    waiter& w = found->second;
    w.trying = false;
    if (!allows_waiting(answer.result)) {
        if (answer.result == outcome::done) ctx_.hit(probe::waiter_granted);
        leave_queue(waiter_ticket, answer.result == outcome::done);
        return answer_client(c, answer);
    }
    w.last_remaining = answer.left;
    w.retry_at = local_time() + queues_[queue_key_of(c.resources)]->refused(answer.left, ctx_.rng.next());
    poll_waiter(waiter_ticket);
}

// --- waiting

void sim_gateway::join_or_refuse(const call& c) {
    if (c.wait == milliseconds{0}) return answer_client(c, {outcome::locked});
    auto& queue = queues_[queue_key_of(c.resources)];
    if (!queue)
        queue.emplace(lockcore::wait_queue::limits{lockcore::majority_of(ctx_.config.nodes), ctx_.config.handoff_max});
    const ticket t = ++last_ticket_;
    queue->join(t);
    waiter& w = waiters_[t];
    w.asked = c;
    w.retry_at = local_time();
    w.deadline = w.retry_at + c.wait;
    if (queue->size() == 1) {
        // The refused attempt has left this gateway's mark in the lease, so the gateway is notified of its end.
        w.retry_at += queue->refused(milliseconds{0}, ctx_.rng.next());
    } else {
        ctx_.hit(probe::waited_behind_another);
    }
    poll_waiter(t);
}

/// Decides whether the waiter continues to wait, tries again or ends its wait.
void sim_gateway::poll_waiter(ticket t) {
    const auto found = waiters_.find(t);
    if (found == waiters_.end() || found->second.trying) return;
    waiter& w = found->second;
    const std::uint32_t queue_key = queue_key_of(w.asked.resources);
    const bool first = queues_[queue_key]->head() == t;
    const microseconds now = local_time();
    w.retry_at = first ? std::min(w.retry_at, w.deadline) : w.deadline;
    if (ctx_.is_active(mutation::waiters_never_retry)) {
        w.retry_now = false;
        w.retry_at = w.deadline;
    }
    if (!w.retry_now && now < w.retry_at) {
        ctx_.events.schedule_in(clock_.real(w.retry_at - now), {.kind = event_kind::waiter_timer,
                                                                .actor = static_cast<std::uint8_t>(index_),
                                                                .a = t,
                                                                .b = ++w.timer_serial});
        return;
    }
    w.retry_now = false;
    const call c = w.asked;
    if (!clients_.is_waiting_for(c)) {
        ctx_.hit(probe::waiter_cancelled);
        leave_queue(t, false);
        return;
    }
    if (now >= w.deadline) {
        ctx_.hit(probe::waiter_timed_out);
        const milliseconds left = w.last_remaining;
        leave_queue(t, false);
        return answer_client(c, {outcome::locked, 0, 0, left});
    }
    if (!first) return poll_waiter(t);
    w.trying = true;
    start_attempt(c, t, {}, nullptr);
}

void sim_gateway::on_waiter_timer(ticket t, std::uint32_t serial) {
    const auto found = waiters_.find(t);
    if (found != waiters_.end() && found->second.timer_serial == serial) poll_waiter(t);
}

void sim_gateway::leave_queue(ticket t, bool granted) {
    const std::uint32_t queue_key = queue_key_of(waiters_.at(t).asked.resources);
    waiters_.erase(t);
    if (ctx_.is_active(mutation::cancelled_waiter_stays) && !granted) return;
    const bool next = queues_[queue_key]->leave(t);
    if (queues_[queue_key]->empty()) {
        queues_[queue_key].reset();
    } else if (next) {
        schedule_head_retry(queue_key, granted ? lockcore::wait_queue::retry_delay_max : milliseconds{0});
    }
}

void sim_gateway::schedule_head_retry(std::uint32_t queue_key, milliseconds pause) {
    if (!queues_[queue_key]) return;
    const auto head = static_cast<ticket>(queues_[queue_key]->head());
    const auto found = waiters_.find(head);
    if (found == waiters_.end()) return;
    waiter& w = found->second;
    if (pause <= milliseconds{0}) {
        w.retry_now = true;
    } else {
        w.retry_at = std::min(w.retry_at, local_time() + pause);
    }
    poll_waiter(head);
}

void sim_gateway::on_client_gone(const call& c) {
    for (auto& [t, w] : waiters_) {
        if (w.asked.client != c.client || w.asked.generation != c.generation) continue;
        w.retry_now = true;
        return poll_waiter(t);
    }
}

// --- RELEASE

void sim_gateway::handle_release(const call& c) {
    stop_top_ups(c.nonce, c.hold);
    // If the head of the queue waits for the same resources, one round releases this lease and acquires the next
    // (HAND-OVER).
    auto& queue = queues_[queue_key_of(c.resources)];
    if (queue) {
        const auto head = static_cast<ticket>(queue->head());
        const auto found = waiters_.find(head);
        const bool ready = found != waiters_.end() && !found->second.trying &&
                           found->second.asked.resources == c.resources && queue->begin_hand_over();
        if (ready) {
            found->second.trying = true;
            const call next = found->second.asked;
            return start_attempt(next, head, {c.nonce, c.hold}, &c);
        }
    }
    start_round(c, command_kind::release);
}

void sim_gateway::on_local_release(resource_set set, bool others_wait) {
    for_each_resource(set, [&](std::uint32_t r) {
        if (queues_[r]) schedule_head_retry(r, queues_[r]->lease_released(others_wait));
        for (std::uint32_t queue_key = 0; queue_key < ctx_.config.resources; ++queue_key) {
            if (queue_key == r || !queues_[queue_key]) continue;
            const bool also = std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& entry) {
                const resource_set wanted = entry.second.asked.resources;
                return queue_key_of(wanted) == queue_key && (wanted >> r & 1);
            });
            if (also) schedule_head_retry(queue_key, milliseconds{0});
        }
    });
}

void sim_gateway::on_release_message(std::uint32_t node, const release_message& w) {
    if (w.mark != mark()) return;  // for an earlier run of this gateway
    ctx_.hit(probe::release_message_received);
    for (std::uint32_t queue_key = 0; queue_key < ctx_.config.resources; ++queue_key) {
        if (!queues_[queue_key]) continue;
        const bool wanted =
            queue_key == w.resource || std::any_of(waiters_.begin(), waiters_.end(), [&](const auto& entry) {
                const resource_set set = entry.second.asked.resources;
                return queue_key_of(set) == queue_key && (set >> w.resource & 1);
            });
        if (!wanted) continue;
        const auto ended = lockcore::nonce::from_bits(0, w.ended);
        schedule_head_retry(queue_key, queues_[queue_key]->lease_ended(static_cast<lockcore::node_index>(node), ended));
    }
}

/// Renewals that are still running do not put the lease back on any node.
void sim_gateway::stop_top_ups(sim_nonce nonce, hold_number hold) {
    for (attempt& a : attempts_) {
        const bool same = a.base_request.nonce == nonce && (hold == 0 || a.base_request.hold == hold);
        if (a.in_use && a.command == command_kind::renew && same) a.may_top_up = false;
    }
}

}  // namespace sim
