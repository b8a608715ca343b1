#include <runtime/common.hpp>
#include <runtime/shard.hpp>

#include <boost/asio/use_awaitable.hpp>

namespace lockcore {
namespace asio = boost::asio;

asio::awaitable<result<close_outcome>> shard::close_to_new_holds(lease_claims claims) {
    close_outcome out;
    out.mark = hold_id::from_bits(random_.next());
    redis::lease_call call = call_for(claims);
    call.close_mark = out.mark.str();
    const auto round = co_await run_round(command_kind::close, std::move(call), claims);
    out.closed = round->machine().outcome() == majority_round::verdict::yes;
    if (out.closed) co_return out;
    reopen(claims, out);
    switch (round->machine().outcome()) {
        case majority_round::verdict::other_holds:
            co_return out;
        case majority_round::verdict::lost:
            co_return make_failure(errc::lease_lost, "No majority of the nodes holds this lease any more.");
        default:
            co_return make_no_quorum("Too few Redis nodes answered to tell whether other holds are left.",
                                     round->answers());
    }
}

void shard::reopen(lease_claims claims, const close_outcome& closed) {
    redis::lease_call call = call_for(claims);
    call.close_mark = closed.mark.str();
    call.lift = true;
    std::make_shared<round_attempt>(command_kind::close, std::move(call), std::move(claims), links_, repeater_)
        ->start();
}

asio::awaitable<result<release_outcome>> shard::release(lease_claims claims, std::string trace_id) {
    stop_top_ups(claims.attempt_id, &claims.hold);  // a TOP-UP after the release would restore the lease
    // If a caller waits here for the same resources, one round ends this lease and grants the next (HAND-OVER).
    const majority_round* found = nullptr;
    std::vector<node_answer> answers;
    const std::shared_ptr<acquire_attempt> handed = hand_over(claims);
    std::shared_ptr<round_attempt> round;
    if (handed) {
        if (!handed->previous_released.has_fired()) co_await handed->previous_released.wait();
        found = &handed->previous_round();
        answers = handed->answers();
    } else {
        round = co_await run_round(command_kind::release, call_for(claims), claims);
        found = &round->machine();
        answers = round->answers();
    }
    const auto holds_left =
        static_cast<std::uint32_t>(found->outcome() == majority_round::verdict::yes ? found->holds() : 0);
    if (holds_left == 0) on_lease_ended(claims.attempt_id);
    if (!handed) on_lease_released(claims, found->notified_waiters() > 0);
    switch (found->outcome()) {
        case majority_round::verdict::yes: {
            if (holds_left == 0) emit(event_kind::lease_released, claims, trace_id, {}, {});
            co_return release_outcome{holds_left, found->yes()};
        }
        case majority_round::verdict::lost:
            co_return make_failure(errc::lease_lost, "No majority of the nodes held this lease any more.");
        default:
            co_return make_no_quorum("Too few Redis nodes answered; the release is repeated on the others.",
                                     std::move(answers));
    }
}

asio::awaitable<result<release_outcome>> shard::revoke(lease_claims claims, lock_manager::revocation revocation) {
    redis::lease_call call = call_for(claims);
    call.scope = redis::release_scope::whole_lease;
    const auto round = co_await run_round(command_kind::release, std::move(call), claims);
    on_lease_ended(claims.attempt_id);
    on_lease_released(claims, round->machine().notified_waiters() > 0);
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes:
            claims.holder = revocation.actor;
            emit(event_kind::lease_revoked, claims, revocation.trace_id, revocation.reason, {});
            co_return release_outcome{0, round->machine().yes()};
        case majority_round::verdict::lost:
            co_return make_failure(errc::lease_lost, "No majority of the nodes held this lease any more.");
        default:
            co_return make_no_quorum("Too few Redis nodes answered; the revocation is repeated on the others.",
                                     round->answers());
    }
}

void shard::on_lease_ended(const nonce& attempt) {
    stop_top_ups(attempt, nullptr);
    notify_keepers(attempt);
}

void shard::stop_top_ups(const nonce& attempt, const hold_id* hold) {
    const auto [first, last] = renewing_.equal_range(std::string(attempt.str()));
    for (auto renewal = first; renewal != last; ++renewal) {
        const auto round = renewal->second.lock();
        if (round && (!hold || round->claims().hold == *hold)) round->disable_top_ups();
    }
}

void shard::release_in_background(redis::lease_call call, lease_claims claims) {
    std::make_shared<round_attempt>(command_kind::release, std::move(call), std::move(claims), links_, repeater_)
        ->start();
}

std::shared_ptr<acquire_attempt> shard::hand_over(const lease_claims& claims) {
    const auto found = queues_.find(claims.resources.front().str());
    if (found == queues_.end() || refusing_) return nullptr;
    waiter& head = *waiters_.at(found->second.order.head());
    const bool ready = !head.trying && !head.hand_over_attempt && head.request.resources == claims.resources;
    // A hand-over must not pass over an earlier waiter for several resources: repeated hand-overs would starve it.
    if (!ready || has_earlier_waiter(claims, found->second.order.head()) || !found->second.order.begin_hand_over())
        return nullptr;
    head.hand_over_attempt = start_attempt(head.request, &claims);
    wake(head);
    return head.hand_over_attempt;
}

}  // namespace lockcore
