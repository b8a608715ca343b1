// The queues of waiting callers, and hand-over to them (docs/protocol.md, "Waiting").
#include <proto/core.hpp>

#include <proto/failures.hpp>

#include <algorithm>

namespace lockcore {

// --- a place in a queue

void core::join_queue(acquire_call& c) {
    if (waiting_.size() >= settings_.waiters_max)
        return finish(c, make_failure(errc::too_many_waiters, "As many callers wait as the configuration allows."));
    if (c.request.admit_waiter && !(c.admission = c.request.admit_waiter()))
        return finish(c,
                      make_failure(errc::too_many_waiters, "As many calls of this caller or its address wait as may."));
    c.give_up_at = ctx_.now.monotonic + c.request.wait;
    c.ticket = tickets_.draw(c.request, ctx_.now.monotonic);
    const wait_queue::limits limits{majority_of(links_.size()), settings_.handoff_max};
    queue& joined = queues_.try_emplace(c.queue_key, queue{wait_queue(limits, find_turn(c.queue_key).handed_over), {}})
                        .first->second;
    joined.order.join(c.ticket);
    waiting_.emplace(c.ticket, &c);
    for (std::size_t i = 1; i < c.request.resources.size(); ++i)
        secondary_waits_.emplace(c.request.resources[i].str(), c.queue_key);

    c.last_refusal = make_failure(errc::resource_locked, "Another lease holds the resource.");
    // The first waiter of a queue has just been refused and has left its wake mark, or it must yield to other managers;
    // so it waits before its next try.
    c.until = ctx_.now.monotonic;
    if (joined.order.size() == 1) c.until += joined.order.refused(milliseconds{0}, ctx_.random.next());
    poll(c);
}

void core::leave_queue(acquire_call& c, bool granted) {
    const auto found = queues_.find(c.queue_key);
    const bool was_head = found->second.order.leave(c.ticket);
    waiting_.erase(c.ticket);
    ctx_.timers.cancel(c.timer);
    c.ticket = 0;
    c.admission.reset();
    for (std::size_t i = 1; i < c.request.resources.size(); ++i) {
        const auto [first, last] = secondary_waits_.equal_range(c.request.resources[i].str());
        const auto wait = std::find_if(first, last, [&c](const auto& entry) { return entry.second == c.queue_key; });
        if (wait != last) secondary_waits_.erase(wait);
    }
    if (found->second.order.empty()) {
        if (granted && found->second.order.handed_over() > 0) {
            turn& last = turns_[c.queue_key];
            last.handed_over = found->second.order.handed_over();
            last.hand_over_expires_at = ctx_.now.monotonic + c.request.ttl;
        }
        queues_.erase(found);
    } else if (was_head) {
        schedule_head_retry(c.queue_key, granted ? wait_queue::retry_delay_max : milliseconds{0});
    }
}

void core::wait_on(acquire_call& c, failure refusal) {
    c.trying = false;
    queue& own = queues_.find(c.queue_key)->second;
    own.held_until = ctx_.now.monotonic + std::min(refusal.remaining, settings_.max_ttl);
    c.until = ctx_.now.monotonic + own.order.refused(refusal.remaining, ctx_.random.next());
    c.last_refusal = std::move(refusal);
    poll(c);
}

void core::poll(acquire_call& c) {
    if (c.trying) return;
    const bool woken = std::exchange(c.woken, false);
    if (c.hand_over_attempt) {
        c.attempt = std::exchange(c.hand_over_attempt, nullptr);
    } else {
        if (c.cancelled) return finish(c, make_cancelled_failure(c));
        if (refusing_) return finish(c, make_shutdown_failure());
        if (ctx_.now.monotonic >= c.give_up_at) return give_up(c);
        const bool is_head = queues_.find(c.queue_key)->second.order.head() == c.ticket;
        if (!is_head) c.until = c.give_up_at;
        if (!is_head || (!woken && ctx_.now.monotonic < c.until)) return sleep(c);
        c.attempt = start_attempt(c.request, nullptr);
    }
    ctx_.timers.cancel(c.timer);
    c.trying = true;
    c.epoch_advanced = false;
    await_attempt(c);
}

void core::sleep(acquire_call& c) {
    ctx_.timers.cancel(c.timer);
    c.timer = ctx_.timers.set(std::min(c.until, c.give_up_at), [this, &c] { poll(c); });
}

void core::wake(acquire_call& c) {
    c.woken = true;
    // By then the call may have been answered.
    ctx_.call_at_step_end([this, call = c.call] {
        if (const auto found = acquiring_.find(call); found != acquiring_.end() && found->second->ticket != 0)
            poll(*found->second);
    });
}

void core::give_up(acquire_call& c) {
    failure& last = *c.last_refusal;
    if (last.remaining == milliseconds{0}) last.remaining = make_locked_failure(c.queue_key).remaining;
    last.queue_position = queues_.find(c.queue_key)->second.order.position(c.ticket);
    tickets_.keep(c.request, c.ticket, ctx_.now.monotonic);
    finish(c, std::move(last));
}

failure core::make_locked_failure(const std::string& queue_key) const {
    failure locked = make_failure(errc::resource_locked, "Another lease holds the resource, and others wait for it.");
    const auto found = queues_.find(queue_key);
    if (found != queues_.end())
        locked.remaining =
            std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(found->second.held_until - ctx_.now.monotonic));
    return locked;
}

// --- when the head of a queue tries

void core::schedule_head_retry(const std::string& queue_key, milliseconds delay) {
    const auto found = queues_.find(queue_key);
    if (found == queues_.end()) return;
    acquire_call& head = head_of(found->second);
    if (delay <= milliseconds{0}) return wake(head);
    if (head.trying) return;
    head.until = std::min(head.until, ctx_.now.monotonic + delay);
    sleep(head);
}

void core::reschedule_head_retry(const std::string& queue_key, monotonic_time time) {
    acquire_call& head = head_of(queues_.at(queue_key));
    if (time <= ctx_.now.monotonic) return wake(head);
    head.until = time;
    if (!head.trying) sleep(head);
}

bool core::has_earlier_waiter(const lease_claims& claims, wait_queue::ticket ticket) const {
    for (const resource_name& r : claims.resources) {
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry) {
            const auto found_queue = queues_.find(entry->second);
            if (found_queue == queues_.end()) continue;
            const auto head = found_queue->second.order.head();
            const auto& wanted = waiting_.at(head)->request.resources;
            if (head < ticket && std::ranges::find(wanted, r) != wanted.end()) return true;
        }
    }
    return false;
}

core::turn core::find_turn(const std::string& queue_key) const {
    const auto found = turns_.find(queue_key);
    return found == turns_.end() ? turn{} : found->second;
}

void core::remove_expired_turns() {
    const monotonic_time time = ctx_.now.monotonic;
    if (time < sweep_turns_at_) return;
    sweep_turns_at_ = time + sweep_turns_interval;
    forget_expired_validities();
    std::erase_if(turns_, [time](const auto& entry) {
        return entry.second.yield_until <= time && entry.second.hand_over_expires_at <= time;
    });
}

// --- the end of a lease

void core::on_lease_released(const lease_claims& claims, bool others_wait) {
    for (const resource_name& r : claims.resources) {
        const auto found = queues_.find(r.str());
        const bool waits_here = found != queues_.end();
        const bool must_yield = others_wait || (waits_here && has_earlier_waiter(claims, found->second.order.head()));
        if (must_yield) {
            turns_[r.str()] = {0, ctx_.now.monotonic + wait_queue::yield_time, {}};
        } else {
            turns_.erase(r.str());
        }
        if (waits_here)
            reschedule_head_retry(r.str(), ctx_.now.monotonic + found->second.order.lease_released(must_yield));
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry)
            schedule_head_retry(entry->second, milliseconds{0});
    }
}

void core::on(const input::lease_ended& what) {
    if (const auto found = queues_.find(what.resource); found != queues_.end())
        schedule_head_retry(what.resource, found->second.order.lease_ended(what.node, what.ended));
    const auto [first, last] = secondary_waits_.equal_range(what.resource);
    for (auto entry = first; entry != last; ++entry) {
        const auto found_queue = queues_.find(entry->second);
        if (found_queue != queues_.end())
            schedule_head_retry(entry->second, found_queue->second.order.lease_ended(what.node, what.ended));
    }
    validities_.erase(what.ended);
    notify_keepers(what.ended, !what.revoked);
}

std::shared_ptr<acquire_attempt> core::hand_over(const lease_claims& claims) {
    const auto found = queues_.find(claims.resources.front().str());
    if (found == queues_.end() || refusing_) return nullptr;
    acquire_call& head = head_of(found->second);
    const bool ready = !head.trying && !head.hand_over_attempt && head.request.resources == claims.resources;
    // A hand-over must not pass over an earlier waiter for several resources: repeated hand-overs would starve it.
    if (!ready || has_earlier_waiter(claims, found->second.order.head()) || !found->second.order.begin_hand_over())
        return nullptr;
    head.hand_over_attempt = start_attempt(head.request, &claims);
    wake(head);
    return head.hand_over_attempt;
}

void core::on(const input::refuse_new_leases&) {
    refusing_ = true;
    for (const auto& [ticket, waiter] : waiting_)
        wake(*waiter);
}

waiting_overview core::list_waiters(std::string_view prefix) const {
    waiting_overview out;
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (const auto& [ticket, waiter] : waiting_) {
        bool counts = false;
        for (const resource_name& name : waiter->request.resources) {
            if (!name.str().starts_with(prefix)) continue;
            ++by_name[name.str()];
            counts = true;
        }
        if (counts) ++out.waiters;
    }
    out.resources.reserve(by_name.size());
    for (const auto& [name, waiters] : by_name)
        out.resources.push_back({std::string(name), waiters});
    return out;
}

}  // namespace lockcore
