#include <proto/lease_id.hpp>
#include <proto/validity.hpp>
#include <runtime/common.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace lockcore {
namespace asio = boost::asio;

/// A place in the queue of the request's first resource. When the head leaves without a lease, the next waiter tries at
/// once. When it leaves with a lease, the lease is usually released on this shard, and until then the next waiter tries
/// only at intervals.
class shard::queue_entry {
  public:
    queue_entry(shard& s, const acquire_request& request, const std::string& queue_key)
        : caller(s.io_, request), ticket(s.tickets_.draw(request, now())), owner_(s), queue_key_(queue_key) {
        const wait_queue::limits limits{majority_of(s.links_.size()), s.config_.handoff_max};
        s.queues_.try_emplace(queue_key, queue{wait_queue(limits, s.find_turn(queue_key).handed_over), {}})
            .first->second.order.join(ticket);
        s.waiters_.emplace(ticket, &caller);
        s.waiter_count_.store(s.waiters_.size(), std::memory_order_relaxed);
        for (std::size_t i = 1; i < request.resources.size(); ++i)
            s.secondary_waits_.emplace(request.resources[i].str(), queue_key);
    }
    ~queue_entry() {
        const auto found = owner_.queues_.find(queue_key_);
        const bool next = found->second.order.leave(ticket);
        owner_.waiters_.erase(ticket);
        owner_.waiter_count_.store(owner_.waiters_.size(), std::memory_order_relaxed);
        for (std::size_t i = 1; i < caller.request.resources.size(); ++i) {
            const auto [first, last] = owner_.secondary_waits_.equal_range(caller.request.resources[i].str());
            const auto wait = std::find_if(first, last, [&](const auto& entry) { return entry.second == queue_key_; });
            if (wait != last) owner_.secondary_waits_.erase(wait);
        }
        if (found->second.order.empty()) {
            if (granted && found->second.order.handed_over() > 0) {
                turn& last = owner_.turns_[queue_key_];
                last.handed_over = found->second.order.handed_over();
                last.hand_over_expires_at = now() + caller.request.ttl;
            }
            owner_.queues_.erase(found);
        } else if (next) {
            owner_.schedule_head_retry(queue_key_, granted ? wait_queue::retry_delay_max : milliseconds{0});
        }
    }
    queue_entry(const queue_entry&) = delete;
    queue_entry& operator=(const queue_entry&) = delete;

    waiter caller;
    const wait_queue::ticket ticket;
    bool granted = false;

  private:
    shard& owner_;
    const std::string& queue_key_;
};

// --- acquiring

asio::awaitable<result<lease>> shard::acquire(acquire_request request) {
    // A cancellation is handled at the places that test for it, instead of by an exception from any wait.
    const bool throws_if_cancelled = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);

    const std::string queue_key = request.resources.front().str();
    const bool may_wait = request.wait > milliseconds{0};
    const monotonic_time started_at = now();
    auto outcome = co_await try_acquire(request, queue_key);
    if (!outcome && may_wait && is_retryable(outcome.error())) outcome = co_await wait_in_queue(request, queue_key);
    record_outcome(request, outcome, started_at);
    co_await asio::this_coro::throw_if_cancelled(throws_if_cancelled);
    co_return outcome;
}

result<lease> shard::make_shutdown_failure() {
    return make_failure(errc::shutting_down, "No new leases are granted: the lock manager is shutting down.");
}

void shard::record_outcome(const acquire_request& request, const result<lease>& outcome, monotonic_time started_at) {
    event e;
    if (outcome) {
        // A further hold is recorded as a renewal; a repeated answer is not recorded.
        if (outcome->repeated) return;
        const bool reentrant = outcome->reentrant;
        e = make_event(reentrant ? event_kind::lease_renewed : event_kind::lease_granted, outcome->claims,
                       request.trace_id, reentrant ? "hold " + std::to_string(outcome->hold_count) : std::string{},
                       request.ttl);
        e.nodes_granted = outcome->nodes_granted;
        e.nodes = outcome->nodes;
    } else if (is_retryable(outcome.error())) {
        lease_claims wanted;
        wanted.resources = request.resources;
        wanted.holder = request.holder;
        e = make_event(event_kind::lease_refused, wanted, request.trace_id, to_string(outcome.error().code),
                       request.ttl);
    } else {
        return;
    }
    e.waited = std::chrono::duration_cast<std::chrono::microseconds>(now() - started_at);
    deps_.events.on_event(std::move(e));
}

asio::awaitable<result<lease>> shard::try_acquire(const acquire_request& request, const std::string& queue_key) {
    if (refusing_) return refuse_acquire();
    // A new caller does not overtake the waiters of this manager, nor those of other managers whose turn it is. But a
    // caller that already holds the lease need not wait for itself.
    const bool must_yield = request.wait > milliseconds{0} && now() < find_turn(queue_key).yield_until;
    if (queues_.contains(queue_key) || must_yield) return reenter_if_held(request, queue_key);
    return await_outcome(start_attempt(request, nullptr), request);
}

asio::awaitable<result<lease>> shard::refuse_acquire() {
    co_return make_shutdown_failure();
}

std::shared_ptr<acquire_attempt> shard::start_attempt(const acquire_request& request, const lease_claims* previous) {
    redis::lease_call call;
    call.resources = request.resources;
    call.attempt_id = nonce::from_bits(random_.next(), random_.next());
    call.hold = hold_id::of_grant(call.attempt_id);
    call.scope = redis::release_scope::undone_hold;
    call.ttl = request.ttl;
    lease_claims claims;
    claims.hold = call.hold;
    claims.resources = request.resources;
    claims.holder = request.holder;
    claims.granted_at = std::chrono::floor<milliseconds>(std::chrono::system_clock::now());  // the lease_id has ms
    call.granted_at = claims.granted_at;
    const idempotency_digest key = make_idempotency_digest(request);
    // The waiters behind this one must be notified when another manager ends the lease.
    const auto found = queues_.find(request.resources.front().str());
    const bool marked = request.kept || (found != queues_.end() && found->second.order.size() > 1);
    const std::string own_hold(call.hold.str());
    const std::string close_mark = request.closed ? own_hold + own_hold : std::string();
    call.tail = lease_tail(claims, {request.ttl, 0, milliseconds{0}, key.text,
                                    marked ? std::string_view(wake_mark_) : std::string_view{}, close_mark});
    if (request.wait > milliseconds{0}) call.wake_mark = wake_mark_;
    // No counter is below the base of its node. With a hint above the highest base the counters of all nodes are equal.
    call.hint =
        observed_tokens_->hint_for(request.resources, fencing_token{value_of(highest_epoch()) * tokens_per_epoch});
    std::shared_ptr<round_attempt> release_previous;
    if (previous) {
        call.previous = previous->attempt_id;
        call.previous_hold = previous->hold;
        release_previous =
            std::make_shared<round_attempt>(command_kind::release, call_for(*previous), *previous, links_, repeater_);
    }
    auto attempt =
        std::make_shared<acquire_attempt>(std::move(call), links_, observed_tokens_, std::move(release_previous));
    attempt->start();
    return attempt;
}

asio::awaitable<result<lease>> shard::await_outcome(std::shared_ptr<acquire_attempt> attempt,
                                                    const acquire_request& request) {
    for (bool retried = false;; retried = true) {
        if (!attempt->done.has_fired()) co_await attempt->done.wait();
        const acquire_machine& machine = attempt->machine();
        if (machine.outcome() == acquire_machine::verdict::granted) {
            const validity_time valid_until = end_of_validity(request.ttl, attempt->started_at());
            // With an idempotency key the caller may repeat the request to get this lease, so the lease is kept.
            const bool cancelled = request.idempotency_key.empty() && co_await is_cancelled();
            if (!cancelled && remaining_until(valid_until) > milliseconds{0}) {
                lease out;
                out.claims.attempt_id = attempt->call().attempt_id;
                out.claims.token = machine.token();
                out.claims.resources = request.resources;
                out.claims.holder = request.holder;
                out.claims.granted_at = attempt->call().granted_at;
                out.claims.hold = attempt->call().hold;
                out.claims.may_be_shared = !request.holder.owner.empty() || !request.idempotency_key.empty();
                out.id = sign_lease_id(out.claims, deps_.mac);
                out.ttl = request.ttl;
                set_validity(out, valid_until);
                out.renewals_left = config_.max_renewals;
                out.nodes_granted = machine.stamps();
                out.nodes = links_.size();
                attempt->report_if_thin(deps_.events);
                co_return out;
            }
            attempt->undo();
            if (cancelled) co_return make_failure(errc::cancelled, "The caller cancelled the request.");
            co_return make_no_quorum("The nodes took longer to answer than the ttl of the lease.", attempt->answers());
        }
        attempt->undo();
        if (attempt->has_overflow() && !retried && co_await advance_epoch(request)) {
            attempt = start_attempt(request, nullptr);
            continue;
        }
        if (machine.outcome() == acquire_machine::verdict::locked) {
            if (const auto own = machine.own_lease()) {
                if (auto reentered = co_await reenter_lease(request, *own)) co_return std::move(*reentered);
            }
            failure locked = machine.occupied().count() >= majority_of(links_.size())
                                 ? occupied_by_another_value(attempt->answers(), machine.occupied(), "at least ")
                                 : make_failure(errc::resource_locked, "Another lease holds the resource.");
            locked.remaining = std::min(machine.remaining(), config_.max_ttl);  // a leaked key has no ttl
            co_return locked;
        }
        co_return make_no_quorum("Too few Redis nodes answered to grant a lease.", attempt->answers());
    }
}

asio::awaitable<bool> shard::advance_epoch(const acquire_request& request) {
    epoch_request without_node{{}, {}, false, highest_epoch()};  // always gets a new epoch
    auto drawn = co_await deps_.epochs.draw(std::move(without_node));
    // The hint of the next ACQUIRE is then the first token of the new epoch.
    if (drawn) observed_tokens_->observe(request.resources, fencing_token{value_of(drawn->value) * tokens_per_epoch});
    co_return drawn.has_value();
}

// --- further holds: re-entrant owners, repeated requests

asio::awaitable<result<lease>> shard::reenter_if_held(const acquire_request& request, const std::string& queue_key) {
    if (request.holder.owner.empty() && request.idempotency_key.empty()) co_return make_locked_failure(queue_key);
    const auto attempt = std::make_shared<survey_attempt>(request.resources.front(), links_);
    attempt->start();
    if (!attempt->done.has_fired()) co_await attempt->done.wait();
    if (attempt->machine().outcome() != survey::verdict::found) co_return make_locked_failure(queue_key);
    const lease_record record = *attempt->machine().lease();
    const bool same_resources =
        request.resources.size() == 1 ? record.resources.empty() : record.resources == request.resources;
    if (!(record.holder == request.holder) || !same_resources) co_return make_locked_failure(queue_key);
    auto reentered = co_await reenter_lease(request, record);
    co_return reentered ? std::move(*reentered) : make_locked_failure(queue_key);
}

asio::awaitable<std::optional<result<lease>>> shard::reenter_lease(const acquire_request& request,
                                                                   const lease_record& own) {
    lease_claims claims;
    claims.attempt_id = own.attempt_id;
    claims.token = own.token;
    claims.resources = request.resources;
    claims.holder = own.holder;
    claims.granted_at = own.granted_at;
    claims.may_be_shared = true;
    const idempotency_digest key = make_idempotency_digest(request);
    const auto [match, first_hold] = key.find_in(own.keys);
    switch (match) {
        case idempotency_digest::match::other_request:
            co_return make_failure(errc::idempotency_mismatch,
                                   "The idempotency key was used for another request, whose lease is still live.");
        case idempotency_digest::match::same: {
            // Each of several calls that keep one lease has a hold, so that the end of one does not end the others.
            if (request.kept) break;
            if (own.holds.is_released(first_hold))
                co_return make_failure(
                    errc::idempotency_mismatch,
                    "The hold of this idempotency key was released, and its lease lives on with other holds.");
            claims.hold = first_hold;
            auto live = co_await inspect(std::move(claims));
            if (!live) {
                if (live.error().code == errc::lease_lost) co_return std::nullopt;
                co_return live.error();
            }
            if (live->validity <= milliseconds{0}) co_return std::nullopt;
            live->repeated = true;
            co_return std::move(*live);
        }
        case idempotency_digest::match::none:
            break;
    }
    const bool known = match == idempotency_digest::match::same;
    if (request.holder.owner.empty() && !known) co_return std::nullopt;
    if (own.holds.is_closed()) co_return std::nullopt;  // its last hold is being sealed and released

    claims.hold = hold_id::from_bits(random_.next());
    redis::lease_call call = call_for(claims);
    call.ttl = request.ttl;
    if (!known) call.key = key.text;
    const auto round = co_await run_round(command_kind::hold, call, claims);
    const validity_time valid_until = end_of_validity(request.ttl, round->started_at());
    const bool cancelled = co_await is_cancelled();
    if (round->machine().outcome() == majority_round::verdict::yes && remaining_until(valid_until) > milliseconds{0} &&
        !cancelled) {
        lease out = make_lease(std::move(claims), request.ttl, valid_until, round->machine());
        out.repeated = known;
        out.reentrant = true;
        co_return out;
    }
    call.scope = redis::release_scope::undone_hold;
    release_in_background(std::move(call), std::move(claims));
    if (cancelled) co_return make_failure(errc::cancelled, "The caller cancelled the request.");
    if (round->machine().outcome() == majority_round::verdict::lost) co_return std::nullopt;
    if (round->machine().outcome() == majority_round::verdict::exhausted)
        co_return make_failure(
            errc::renewals_exhausted,
            round->machine().limit() > 0
                ? "The lease has " + std::to_string(holds_max) + " holds, the largest number allowed."
                : "With another hold the lease would be held longer than max_hold allows.");
    co_return make_no_quorum("Too few Redis nodes answered to add another hold.", round->answers());
}

// --- waiting

failure shard::make_locked_failure(const std::string& queue_key) const {
    failure locked = make_failure(errc::resource_locked, "Another lease holds the resource, and others wait for it.");
    const auto found = queues_.find(queue_key);
    if (found != queues_.end())
        locked.remaining = std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(found->second.held_until - now()));
    return locked;
}

asio::awaitable<result<lease>> shard::wait_in_queue(const acquire_request& request, const std::string& queue_key) {
    if (waiters_.size() >= config_.waiters_max)
        co_return make_failure(errc::too_many_waiters, "As many callers wait as the configuration allows.");
    const monotonic_time give_up_at = now() + request.wait;
    queue_entry entry(*this, request, queue_key);
    waiter& caller = entry.caller;
    queue& own_queue = queues_.find(queue_key)->second;

    failure last = make_failure(errc::resource_locked, "Another lease holds the resource.");
    // The first waiter of a queue has just been refused and has left its wake mark, or it must yield to other managers;
    // so it waits before its next try.
    caller.until = now();
    if (own_queue.order.size() == 1) caller.until += own_queue.order.refused(milliseconds{0}, jitter_());
    for (;;) {
        const bool first = own_queue.order.head() == entry.ticket;
        caller.until = first ? std::min(caller.until, give_up_at) : give_up_at;
        if (!caller.hand_over_attempt) co_await sleep(caller);
        caller.woken = false;
        auto attempt = std::exchange(caller.hand_over_attempt, nullptr);
        if (!attempt) {
            if (co_await is_cancelled()) co_return make_failure(errc::cancelled, "The caller cancelled the request.");
            if (refusing_) co_return make_shutdown_failure();
            if (now() >= give_up_at) {
                if (last.remaining == milliseconds{0}) last.remaining = make_locked_failure(queue_key).remaining;
                last.queue_position = own_queue.order.position(entry.ticket);
                tickets_.keep(request, entry.ticket, now());
                co_return last;
            }
            if (own_queue.order.head() != entry.ticket) continue;
            attempt = start_attempt(request, nullptr);
        }
        caller.trying = true;
        auto outcome = co_await await_outcome(std::move(attempt), request);
        caller.trying = false;
        entry.granted = static_cast<bool>(outcome);
        if (outcome || !is_retryable(outcome.error())) co_return outcome;
        last = outcome.error();
        own_queue.held_until = now() + std::min(last.remaining, config_.max_ttl);
        caller.until = now() + own_queue.order.refused(last.remaining, jitter_());
    }
}

bool shard::is_retryable(const failure& f) {
    return f.code == errc::resource_locked || f.code == errc::no_quorum;
}

asio::awaitable<void> shard::sleep(sleeper& s) {
    while (!s.woken && now() < s.until) {
        if (co_await is_cancelled()) co_return;
        s.timer.expires_at(s.until);
        boost::system::error_code ignored;  // the loop tests why the wait ended: wake(), a new time, or cancellation
        co_await s.timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
}

void shard::wake(sleeper& s) {
    s.woken = true;
    s.timer.cancel();
}

void shard::schedule_head_retry(const std::string& queue_key, milliseconds delay) {
    const auto found = queues_.find(queue_key);
    if (found == queues_.end()) return;
    waiter& head = *waiters_.at(found->second.order.head());
    if (delay <= milliseconds{0}) return wake(head);
    if (head.trying) return;
    head.until = std::min(head.until, now() + delay);
    head.timer.cancel();
}

void shard::reschedule_head_retry(const std::string& queue_key, monotonic_time time) {
    waiter& head = *waiters_.at(queues_.at(queue_key).order.head());
    if (time <= now()) return wake(head);
    head.until = time;
    head.timer.cancel();
}

bool shard::has_earlier_waiter(const lease_claims& claims, wait_queue::ticket ticket) const {
    for (const resource_name& r : claims.resources) {
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry) {
            const auto found_queue = queues_.find(entry->second);
            if (found_queue == queues_.end()) continue;
            const auto head = found_queue->second.order.head();
            const auto& wanted = waiters_.at(head)->request.resources;
            if (head < ticket && std::ranges::find(wanted, r) != wanted.end()) return true;
        }
    }
    return false;
}

shard::turn shard::find_turn(const std::string& queue_key) const {
    const auto found = turns_.find(queue_key);
    return found == turns_.end() ? turn{} : found->second;
}

void shard::remove_expired_turns() {
    const monotonic_time time = now();
    if (time < sweep_turns_at_) return;
    sweep_turns_at_ = time + sweep_turns_interval;
    std::erase_if(turns_, [time](const auto& entry) {
        return entry.second.yield_until <= time && entry.second.hand_over_expires_at <= time;
    });
}

void shard::on_lease_released(const lease_claims& claims, bool others_wait) {
    for (const resource_name& r : claims.resources) {
        const auto found = queues_.find(r.str());
        const bool waits_here = found != queues_.end();
        const bool must_yield = others_wait || (waits_here && has_earlier_waiter(claims, found->second.order.head()));
        if (must_yield) {
            turns_[r.str()] = {0, now() + wait_queue::yield_time, {}};
        } else {
            turns_.erase(r.str());
        }
        if (waits_here) reschedule_head_retry(r.str(), now() + found->second.order.lease_released(must_yield));
        const auto [first, last] = secondary_waits_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry)
            schedule_head_retry(entry->second, milliseconds{0});
    }
}

void shard::on_remote_release(node_index node, const nonce& ended, std::string_view resource) {
    const std::string name(resource);
    if (const auto found = queues_.find(name); found != queues_.end())
        schedule_head_retry(name, found->second.order.lease_ended(node, ended));
    const auto [first, last] = secondary_waits_.equal_range(name);
    for (auto entry = first; entry != last; ++entry) {
        const auto found_queue = queues_.find(entry->second);
        if (found_queue != queues_.end())
            schedule_head_retry(entry->second, found_queue->second.order.lease_ended(node, ended));
    }
    notify_keepers(ended);
}

void shard::refuse_new_leases() {
    refusing_ = true;
    for (const auto& [ticket, caller] : waiters_)
        wake(*caller);
}

}  // namespace lockcore
