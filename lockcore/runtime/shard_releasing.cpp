#include <runtime/common.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/use_awaitable.hpp>

namespace lockcore {
namespace asio = boost::asio;

asio::awaitable<result<closing>> shard::close_to_holds(lease_claims claims) {
    closing out;
    out.mark = hold_id::from_bits(random_.next());
    redis::lease_call call = call_for(claims);
    call.close_mark = out.mark.str();
    const auto round = co_await run_round(command_kind::close, std::move(call), claims);
    out.closed = round->machine().outcome() == majority_round::verdict::yes;
    if (out.closed) co_return out;
    reopen(claims, out);
    switch (round->machine().outcome()) {
        case majority_round::verdict::kept:
            co_return out;
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer holds this lease.");
        default:
            co_return no_quorum("Too few Redis nodes answered to tell whether other holds are left.", round->answers());
    }
}

void shard::reopen(lease_claims claims, const closing& closed) {
    redis::lease_call call = call_for(claims);
    call.close_mark = closed.mark.str();
    call.lift = true;
    std::make_shared<round_attempt>(command_kind::close, std::move(call), std::move(claims), links_, repeater_)
        ->start();
}

asio::awaitable<result<release_outcome>> shard::release(lease_claims claims, std::string trace_id) {
    stop_top_ups(claims.attempt, &claims.hold);  // none of them may come behind the release
    // Where somebody waits here for just this, one round ends the one lease and begins the next (HAND-OVER).
    const majority_round* found = nullptr;
    std::vector<node_answer> answers;
    const std::shared_ptr<acquire_attempt> handed = hand_over(claims);
    std::shared_ptr<round_attempt> round;
    if (handed) {
        if (!handed->given_back.fired()) co_await handed->given_back.wait();
        found = &handed->previous();
        answers = handed->answers();
    } else {
        round = co_await run_round(command_kind::release, call_for(claims), claims);
        found = &round->machine();
        answers = round->answers();
    }
    const auto holds_left =
        static_cast<std::uint32_t>(found->outcome() == majority_round::verdict::yes ? found->holds() : 0);
    if (holds_left == 0) ended_here(claims.attempt);
    if (!handed) given_back(claims, found->told() > 0);
    switch (found->outcome()) {
        case majority_round::verdict::yes: {
            if (holds_left == 0) emit(event_kind::lease_released, claims, trace_id, {}, {});
            co_return release_outcome{holds_left, found->yes()};
        }
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer held this lease.");
        default:
            co_return no_quorum("Too few Redis nodes answered; the others are told when they can be reached.",
                                std::move(answers));
    }
}

asio::awaitable<result<release_outcome>> shard::revoke(lease_claims claims, lock_manager::revocation why) {
    redis::lease_call call = call_for(claims);
    call.scope = redis::release_scope::whole_lease;
    const auto round = co_await run_round(command_kind::release, std::move(call), claims);
    ended_here(claims.attempt);
    given_back(claims, round->machine().told() > 0);
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes:
            claims.by = why.by;
            emit(event_kind::lease_revoked, claims, why.trace_id, why.reason, {});
            co_return release_outcome{0, round->machine().yes()};
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer held this lease.");
        default:
            co_return no_quorum("Too few Redis nodes answered; where the lease was not taken away it runs out.",
                                round->answers());
    }
}

void shard::ended_here(const nonce& attempt) {
    stop_top_ups(attempt, nullptr);
    tell_keepers(attempt);
}

/// Of all its holds, if `of_hold` is null.
void shard::stop_top_ups(const nonce& attempt, const hold_id* of_hold) {
    const auto [first, last] = renewing_.equal_range(std::string(attempt.str()));
    for (auto renewal = first; renewal != last; ++renewal) {
        const auto round = renewal->second.lock();
        if (round && (!of_hold || round->claims().hold == *of_hold)) round->no_more_top_ups();
    }
}

/// RELEASE that nobody waits for.
void shard::release_behind(redis::lease_call call, lease_claims claims) {
    std::make_shared<round_attempt>(command_kind::release, std::move(call), std::move(claims), links_, repeater_)
        ->start();
}

std::shared_ptr<acquire_attempt> shard::hand_over(const lease_claims& claims) {
    const auto found = queues_.find(claims.resources.front().str());
    if (found == queues_.end() || refusing_) return nullptr;
    waiter& head = *waiters_.at(found->second.order.head());
    const bool ready = !head.trying && !head.handed && head.request.resources == claims.resources;
    // Who waits for several came first and is next in its own queue: a hand-over past it would starve it.
    if (!ready || waits_longer(claims, found->second.order.head()) || !found->second.order.takes_over()) return nullptr;
    head.handed = start_attempt(head.request, &claims);
    wake(head);
    return head.handed;
}

}  // namespace lockcore
