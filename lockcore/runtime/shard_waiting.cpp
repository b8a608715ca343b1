#include <proto/lease_id.hpp>
#include <proto/validity.hpp>
#include <runtime/common.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace lockcore {
namespace asio = boost::asio;

/// A place in the queue of the request's first resource. Who leaves it without the lease lets the next one contend; who
/// leaves with it will give it back here, and until then the next one only looks from time to time.
class shard::place_in_queue {
  public:
    place_in_queue(shard& s, const acquire_request& request, const std::string& home)
        : self(s.io_, request), ticket(s.tickets_.draw(request, now())), owner_(s), home_(home) {
        const wait_queue::limits limits{majority_of(s.links_.size()), s.config_.handoff_max};
        s.queues_.try_emplace(home, queue{wait_queue(limits, s.turn_of(home).handed_over), {}})
            .first->second.order.join(ticket);
        s.waiters_.emplace(ticket, &self);
        s.waiting_.store(s.waiters_.size(), std::memory_order_relaxed);
        for (std::size_t i = 1; i < request.resources.size(); ++i)
            s.also_waited_for_.emplace(request.resources[i].str(), home);
    }
    ~place_in_queue() {
        const auto found = owner_.queues_.find(home_);
        const bool next = found->second.order.leave(ticket);
        owner_.waiters_.erase(ticket);
        owner_.waiting_.store(owner_.waiters_.size(), std::memory_order_relaxed);
        for (std::size_t i = 1; i < self.request.resources.size(); ++i) {
            const auto [first, last] = owner_.also_waited_for_.equal_range(self.request.resources[i].str());
            const auto mine = std::find_if(first, last, [&](const auto& entry) { return entry.second == home_; });
            if (mine != last) owner_.also_waited_for_.erase(mine);
        }
        if (found->second.order.empty()) {
            if (granted && found->second.order.handed_over() > 0) {
                turn& last = owner_.turns_[home_];
                last.handed_over = found->second.order.handed_over();
                last.forget_handed = now() + self.request.ttl;
            }
            owner_.queues_.erase(found);
        } else if (next) {
            owner_.let_head_look(home_, granted ? wait_queue::look_again : milliseconds{0});
        }
    }
    place_in_queue(const place_in_queue&) = delete;
    place_in_queue& operator=(const place_in_queue&) = delete;

    waiter self;
    const wait_queue::ticket ticket;
    bool granted = false;

  private:
    shard& owner_;
    const std::string& home_;
};

// --- taking

asio::awaitable<result<lease>> shard::acquire(acquire_request request) {
    // A caller that went away is seen where it can be answered properly, not by an exception out of any wait.
    const bool threw = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);

    const std::string home = request.resources.front().str();
    const bool may_wait = request.wait > milliseconds{0};
    const monotonic_time asked_at = now();
    auto outcome = co_await first_try(request, home);
    if (!outcome && may_wait && worth_waiting(outcome.error())) outcome = co_await wait_in_queue(request, home);
    note(request, outcome, asked_at);
    co_await asio::this_coro::throw_if_cancelled(threw);
    co_return outcome;
}

result<lease> shard::no_new_leases() {
    return fail(errc::shutting_down, "No new leases are given: it is shutting down.");
}

void shard::note(const acquire_request& request, const result<lease>& outcome, monotonic_time asked_at) {
    event e;
    if (outcome) {
        // A hold more, or an old answer again, is no new grant.
        if (outcome->repeated) return;
        const bool again = outcome->entered;
        e = make_event(again ? event_kind::lease_renewed : event_kind::lease_granted, outcome->claims, request.trace_id,
                       again ? "hold " + std::to_string(outcome->hold_count) : std::string{}, request.ttl);
        e.nodes_granted = outcome->nodes_granted;
        e.nodes = outcome->nodes;
    } else if (worth_waiting(outcome.error())) {
        lease_claims wanted;
        wanted.resources = request.resources;
        wanted.by = request.by;
        e = make_event(event_kind::lease_refused, wanted, request.trace_id, to_string(outcome.error().code),
                       request.ttl);
    } else {
        return;
    }
    e.waited = std::chrono::duration_cast<std::chrono::microseconds>(now() - asked_at);
    deps_.events.on_event(std::move(e));
}

asio::awaitable<result<lease>> shard::first_try(const acquire_request& request, const std::string& home) {
    if (refusing_) return refuse();
    // Nobody overtakes those who wait, here or at other managers whose turn it is; but who holds the lease already need
    // not wait for itself.
    const bool others_first = request.wait > milliseconds{0} && now() < turn_of(home).others_first;
    if (queues_.contains(home) || others_first) return enter_again(request, home);
    return settle(start_attempt(request, nullptr), request);
}

asio::awaitable<result<lease>> shard::refuse() {
    co_return no_new_leases();
}

std::shared_ptr<acquire_attempt> shard::start_attempt(const acquire_request& request, const lease_claims* previous) {
    redis::lease_call call;
    call.resources = request.resources;
    call.attempt = nonce::from_bits(random_.next(), random_.next());
    call.hold = hold_id::of_grant(call.attempt);
    call.scope = redis::release_scope::undone_hold;
    call.ttl = request.ttl;
    lease_claims claims;
    claims.hold = call.hold;
    claims.resources = request.resources;
    claims.by = request.by;
    claims.granted_at = std::chrono::floor<milliseconds>(std::chrono::system_clock::now());  // as the lease_id keeps it
    call.granted_at = claims.granted_at;
    const idempotency_mark key = make_idempotency_mark(request);
    // Whoever waits behind it here has to be told when the lease ends at another gateway.
    const auto behind = queues_.find(request.resources.front().str());
    const bool marked = request.kept || (behind != queues_.end() && behind->second.order.size() > 1);
    call.tail = lease_tail(claims, {request.ttl, 0, milliseconds{0}, key.text,
                                    marked ? std::string_view(mark_) : std::string_view{}, request.closed});
    if (request.wait > milliseconds{0}) call.mark = mark_;
    // No counter is below its node's base: from the highest of those on, all nodes count in step.
    call.hint = heard_->hint_for(request.resources, fencing_token{value_of(highest_epoch()) * tokens_per_epoch});
    std::shared_ptr<round_attempt> release_previous;
    if (previous) {
        call.previous = previous->attempt;
        call.previous_hold = previous->hold;
        release_previous =
            std::make_shared<round_attempt>(command_kind::release, call_for(*previous), *previous, links_, repeater_);
    }
    auto attempt = std::make_shared<acquire_attempt>(std::move(call), links_, heard_, std::move(release_previous));
    attempt->start();
    return attempt;
}

asio::awaitable<result<lease>> shard::settle(std::shared_ptr<acquire_attempt> attempt, const acquire_request& request) {
    for (bool retried = false;; retried = true) {
        if (!attempt->done.fired()) co_await attempt->done.wait();
        const class acquire& machine = attempt->machine();
        if (machine.outcome() == acquire::verdict::granted) {
            const validity_time valid_until = end_of_validity(request.ttl, attempt->started_at());
            // With an idempotency key the caller may ask again for just this lease, and may have done so already.
            const bool unwanted = request.idempotency_key.empty() && co_await caller_gone();
            if (!unwanted && left_until(valid_until) > milliseconds{0}) {
                lease out;
                out.claims.attempt = attempt->call().attempt;
                out.claims.token = machine.token();
                out.claims.resources = request.resources;
                out.claims.by = request.by;
                out.claims.granted_at = attempt->call().granted_at;
                out.claims.hold = attempt->call().hold;
                out.claims.may_be_shared = !request.by.owner.empty() || !request.idempotency_key.empty();
                out.id = seal_lease_id(out.claims, deps_.mac);
                out.ttl = request.ttl;
                set_validity(out, valid_until);
                out.renewals_left = config_.max_renewals;
                out.nodes_granted = machine.stamps();
                out.nodes = links_.size();
                attempt->watch_thin(deps_.events);
                co_return out;
            }
            attempt->undo();
            if (unwanted) co_return fail(errc::cancelled, "The caller went away.");
            failure late = fail(errc::no_quorum, "The nodes took longer to answer than the lease would have lasted.");
            late.answers = attempt->answers();
            co_return late;
        }
        attempt->undo();
        if (attempt->overflowed() && !retried && co_await leave_used_up_epoch(request)) {
            attempt = start_attempt(request, nullptr);
            continue;
        }
        if (machine.outcome() == acquire::verdict::locked) {
            if (const auto own = machine.own_lease()) {
                if (auto entered = co_await enter_again(request, *own)) co_return std::move(*entered);
            }
            failure locked = machine.occupied().count() >= majority_of(links_.size())
                                 ? occupied_by_another_value(attempt->answers(), machine.occupied(), "at least ")
                                 : fail(errc::resource_locked, "Another lease holds the resource.");
            locked.remaining = std::min(machine.remaining(), config_.max_ttl);  // a key that leaked has no end
            co_return locked;
        }
        failure none = fail(errc::no_quorum, "Too few Redis nodes answered to grant a lease.");
        none.answers = attempt->answers();
        co_return none;
    }
}

asio::awaitable<bool> shard::leave_used_up_epoch(const acquire_request& request) {
    epoch_request for_no_node{{}, {}, false, highest_epoch()};  // always a new one
    auto drawn = co_await deps_.epochs.draw(std::move(for_no_node));
    // The next ACQUIRE's hint is one higher than this: the first token of the new epoch.
    if (drawn) heard_->heard(request.resources, fencing_token{value_of(drawn->value) * tokens_per_epoch});
    co_return drawn.has_value();
}

// --- asking again: re-entrant owners, repeated requests

asio::awaitable<result<lease>> shard::enter_again(const acquire_request& request, const std::string& home) {
    if (request.by.owner.empty() && request.idempotency_key.empty()) co_return locked_now(home);
    const auto asked = std::make_shared<survey_attempt>(request.resources.front(), links_);
    asked->start();
    if (!asked->done.fired()) co_await asked->done.wait();
    if (asked->machine().outcome() != survey::verdict::found) co_return locked_now(home);
    const lease_record record = *asked->machine().lease();
    const bool same_resources =
        request.resources.size() == 1 ? record.resources.empty() : record.resources == request.resources;
    if (!(record.by == request.by) || !same_resources) co_return locked_now(home);
    auto entered = co_await enter_again(request, record);
    co_return entered ? std::move(*entered) : locked_now(home);
}

asio::awaitable<std::optional<result<lease>>> shard::enter_again(const acquire_request& request,
                                                                 const lease_record& own) {
    lease_claims claims;
    claims.attempt = own.attempt;
    claims.token = own.token;
    claims.resources = request.resources;
    claims.by = own.by;
    claims.granted_at = own.granted_at;
    claims.may_be_shared = true;
    const idempotency_mark key = make_idempotency_mark(request);
    const auto [asked_before, first_hold] = key.found_in(own.keys);
    switch (asked_before) {
        case idempotency_mark::match::other_request:
            co_return fail(errc::idempotency_mismatch,
                           "The idempotency key was used for another request, whose lease still lives.");
        case idempotency_mark::match::same: {
            // Two who keep one lease: each has a hold, so that the end of one is not the end of both.
            if (request.kept) break;
            if (own.holds.released(first_hold))
                co_return fail(
                    errc::idempotency_mismatch,
                    "The hold that this idempotency key took was given back, and other holds keep its lease.");
            claims.hold = first_hold;
            auto seen = co_await inspect(std::move(claims));
            if (!seen) {
                if (seen.error().code == errc::lease_lost) co_return std::nullopt;
                co_return seen.error();
            }
            if (seen->validity <= milliseconds{0}) co_return std::nullopt;
            seen->repeated = true;
            co_return std::move(*seen);
        }
        case idempotency_mark::match::none:
            break;
    }
    const bool known = asked_before == idempotency_mark::match::same;
    if (request.by.owner.empty() && !known) co_return std::nullopt;
    if (own.holds.closed()) co_return std::nullopt;  // its last hold is being released with a seal

    claims.hold = hold_id::from_bits(random_.next());
    redis::lease_call call = call_for(claims);
    call.ttl = request.ttl;
    if (!known) call.key = key.text;
    const auto round = co_await run_round(command_kind::hold, call, claims);
    const validity_time valid_until = end_of_validity(request.ttl, round->started_at());
    const bool gone = co_await caller_gone();
    if (round->machine().outcome() == majority_round::verdict::yes && left_until(valid_until) > milliseconds{0} &&
        !gone) {
        lease again = make_lease(std::move(claims), request.ttl, valid_until, round->machine());
        again.repeated = known;
        again.entered = true;
        co_return again;
    }
    call.scope = redis::release_scope::undone_hold;
    release_behind(std::move(call), std::move(claims));
    if (gone) co_return fail(errc::cancelled, "The caller went away.");
    if (round->machine().outcome() == majority_round::verdict::lost) co_return std::nullopt;
    if (round->machine().outcome() == majority_round::verdict::exhausted)
        co_return fail(errc::renewals_exhausted,
                       round->machine().limit() > 0
                           ? "The lease has " + std::to_string(holds_max) + " holds, as many as it may have."
                           : "With another hold the lease would be held longer than max_hold allows.");
    failure none = fail(errc::no_quorum, "Too few Redis nodes answered to count another hold.");
    none.answers = round->answers();
    co_return none;
}

// --- waiting

failure shard::locked_now(const std::string& home) const {
    failure locked = fail(errc::resource_locked, "Another lease holds the resource, and others wait for it.");
    const auto found = queues_.find(home);
    if (found != queues_.end())
        locked.remaining = std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(found->second.held_until - now()));
    return locked;
}

asio::awaitable<result<lease>> shard::wait_in_queue(const acquire_request& request, const std::string& home) {
    if (waiters_.size() >= config_.waiters_max)
        co_return fail(errc::too_many_waiters, "As many callers wait as the configuration allows.");
    const monotonic_time give_up_at = now() + request.wait;
    place_in_queue place(*this, request, home);
    waiter& me = place.self;
    queue& mine = queues_.find(home)->second;

    failure last = fail(errc::resource_locked, "Another lease holds the resource.");
    // The first here has just been refused and left its mark to be told of that lease's end; or others have their turn.
    me.until = now();
    if (mine.order.size() == 1) me.until += mine.order.refused(milliseconds{0}, chance_());
    for (;;) {
        const bool first = mine.order.head() == place.ticket;
        me.until = first ? std::min(me.until, give_up_at) : give_up_at;
        if (!me.handed) co_await sleep(me);
        me.woken = false;
        auto attempt = std::exchange(me.handed, nullptr);
        if (!attempt) {
            if (co_await caller_gone()) co_return fail(errc::cancelled, "The caller went away.");
            if (refusing_) co_return no_new_leases();
            if (now() >= give_up_at) {
                if (last.remaining == milliseconds{0}) last.remaining = locked_now(home).remaining;
                last.queue_position = mine.order.position(place.ticket);
                tickets_.keep(request, place.ticket, now());
                co_return last;
            }
            if (mine.order.head() != place.ticket) continue;
            attempt = start_attempt(request, nullptr);
        }
        me.trying = true;
        auto outcome = co_await settle(std::move(attempt), request);
        me.trying = false;
        place.granted = static_cast<bool>(outcome);
        if (outcome || !worth_waiting(outcome.error())) co_return outcome;
        last = outcome.error();
        mine.held_until = now() + std::min(last.remaining, config_.max_ttl);
        me.until = now() + mine.order.refused(last.remaining, chance_());
    }
}

bool shard::worth_waiting(const failure& f) {
    return f.code == errc::resource_locked || f.code == errc::no_quorum;
}

asio::awaitable<void> shard::sleep(sleeper& s) {
    while (!s.woken && now() < s.until) {
        if (co_await caller_gone()) co_return;
        s.timer.expires_at(s.until);
        boost::system::error_code ignored;  // woken, or the time has come or changed, or the caller went away
        co_await s.timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
}

void shard::wake(sleeper& s) {
    s.woken = true;
    s.timer.cancel();
}

void shard::let_head_look(const std::string& home, milliseconds pause) {
    const auto found = queues_.find(home);
    if (found == queues_.end()) return;
    waiter& head = *waiters_.at(found->second.order.head());
    if (pause <= milliseconds{0}) return wake(head);
    if (head.trying) return;
    head.until = std::min(head.until, now() + pause);
    head.timer.cancel();
}

/// Not before, whatever it had in mind.
void shard::let_head_look_at(const std::string& home, monotonic_time at) {
    waiter& head = *waiters_.at(queues_.at(home).order.head());
    if (at <= now()) return wake(head);
    head.until = at;
    head.timer.cancel();
}

bool shard::waits_longer(const lease_claims& claims, wait_queue::ticket than) const {
    for (const resource_name& r : claims.resources) {
        const auto [first, last] = also_waited_for_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry) {
            const auto home = queues_.find(entry->second);
            if (home == queues_.end()) continue;
            const auto ticket = home->second.order.head();
            const auto& wanted = waiters_.at(ticket)->request.resources;
            if (ticket < than && std::ranges::find(wanted, r) != wanted.end()) return true;
        }
    }
    return false;
}

shard::turn shard::turn_of(const std::string& home) const {
    const auto found = turns_.find(home);
    return found == turns_.end() ? turn{} : found->second;
}

void shard::forget_turns() {
    const monotonic_time at = now();
    if (at < sweep_turns_at_) return;
    sweep_turns_at_ = at + sweep_turns_every;
    std::erase_if(turns_, [at](const auto& entry) {
        return entry.second.others_first <= at && entry.second.forget_handed <= at;
    });
}

void shard::given_back(const lease_claims& claims, bool others_wait) {
    for (const resource_name& r : claims.resources) {
        const auto found = queues_.find(r.str());
        const bool waits_here = found != queues_.end();
        const bool later = others_wait || (waits_here && waits_longer(claims, found->second.order.head()));
        if (later) {
            turns_[r.str()] = {0, now() + wait_queue::others_first, {}};
        } else {
            turns_.erase(r.str());
        }
        if (waits_here) let_head_look_at(r.str(), now() + found->second.order.given_back(later));
        const auto [first, last] = also_waited_for_.equal_range(r.str());
        for (auto entry = first; entry != last; ++entry)
            let_head_look(entry->second, milliseconds{0});
    }
}

void shard::ended_elsewhere(node_index node, const nonce& ended, std::string_view resource) {
    const std::string name(resource);
    if (const auto found = queues_.find(name); found != queues_.end())
        let_head_look(name, found->second.order.told(node, ended));
    const auto [first, last] = also_waited_for_.equal_range(name);
    for (auto entry = first; entry != last; ++entry) {
        const auto home = queues_.find(entry->second);
        if (home != queues_.end()) let_head_look(entry->second, home->second.order.told(node, ended));
    }
    tell_keepers(ended);
}

void shard::refuse_new_leases() {
    refusing_ = true;
    for (const auto& [ticket, waiting] : waiters_)
        wake(*waiting);
}

}  // namespace lockcore
