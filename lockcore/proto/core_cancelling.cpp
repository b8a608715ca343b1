// Requests that are cancelled by their idempotency key (docs/protocol.md, "Waiting").
#include <proto/core.hpp>

#include <proto/failures.hpp>

#include <algorithm>

namespace lockcore {
namespace {

/// How long a request may be on its way to a manager, in addition to its wait there.
constexpr std::chrono::seconds transit_max{10};
/// The pause between two searches for the lease of a cancelled request doubles from the first to the longest.
constexpr milliseconds search_pause_first{100};
constexpr milliseconds search_pause_max{2'000};

}  // namespace

void core::on(input::cancel_request what) {
    const std::string name = name_request(what.request);
    cancelled_requests::entry* const cancelled =
        cancelled_requests_.remember(name, what.request, settings_.waiters_max);
    const bool remembered = cancelled != nullptr;
    if (remembered) {
        cancelled->until = std::max(cancelled->until, ctx_.now.monotonic + what.request.wait + transit_max);
        cancelled->pause = search_pause_first;
        search_later(name);
    }
    auto search = [this, call = what.call, request = what.request, remembered] {
        release_by_key(request, [this, call, remembered](result<release_outcome> outcome) {
            if (outcome && !remembered)
                outcome = make_failure(errc::busy,
                                       "As many cancelled requests are remembered as lease.waiters_max, or "
                                       "the share of one principal in it, allows.");
            ctx_.answer(call, std::move(outcome));
        });
    };
    const auto own = keyed_calls_.find(name);
    if (own == keyed_calls_.end()) return search();
    // What they have acquired is undone until they are answered, so that it is not found.
    own->second.when_answered.push_back(std::move(search));
    const std::vector<call_id> calls = own->second.calls;
    for (const call_id call : calls) {
        acquire_call& c = *acquiring_.at(call);
        c.cancelled = c.key_cancelled = true;
        if (c.waiter) poll(c);
    }
}

void core::end_keyed_call(const std::string& name, call_id call) {
    const auto found = keyed_calls_.find(name);
    std::erase(found->second.calls, call);
    if (!found->second.calls.empty()) return;
    for (auto& next : found->second.when_answered)
        ctx_.call_at_step_end(std::move(next));
    keyed_calls_.erase(found);
}

void core::search_later(const std::string& name) {
    cancelled_requests::entry* const cancelled = cancelled_requests_.find(name);
    if (cancelled == nullptr) return;
    ctx_.timers.cancel(cancelled->timer);
    cancelled->timer = ctx_.timers.set(std::min(cancelled->until, ctx_.now.monotonic + cancelled->pause), [this, name] {
        const cancelled_requests::entry& due = *cancelled_requests_.find(name);
        if (ctx_.now.monotonic >= due.until) return cancelled_requests_.forget(name);
        release_by_key(due.request, [this, name](const auto&) { search_later(name); });
    });
    cancelled->pause = std::min(2 * cancelled->pause, search_pause_max);
}

void core::release_by_key(const acquire_request& request, release_continuation then) {
    const auto attempt = std::make_shared<survey_attempt>(ctx_, request.resources.front(), links_);
    attempt->start([this, request, then = std::move(then)](const survey_attempt& found) {
        const bool on_majority = found.machine().outcome() == survey::verdict::found;
        const std::vector<lease_record> reported = found.machine().reported_leases();
        // A lease of which no majority has the same token keeps others out too.
        for (const lease_record& own : reported) {
            if (own.token == fencing_token{} || !is_own(request, own)) continue;
            const auto [match, first_hold] = make_idempotency_digest(request).find_in(own.keys);
            const hold_id hold = first_hold.confirmed();
            // The key is that of the request, even if its ttl is another.
            if (match == idempotency_digest::match::none || own.holds.is_released(hold)) continue;
            lease_claims claims = claims_of(request, own);
            claims.hold = hold;
            const release_continuation released = [then](result<release_outcome> outcome) {
                if (!outcome && outcome.error().code == errc::lease_lost) return then(release_outcome{});
                then(std::move(outcome));
            };
            if (on_majority && &own == &reported.front()) return release(std::move(claims), request.trace_id, released);
            return release_remnant(std::move(claims), request.trace_id, released);
        }
        if (found.machine().outcome() == survey::verdict::no_quorum)
            return then(make_no_quorum("Too few Redis nodes answered to tell whether the request has a lease.",
                                       found.answers()));
        then(release_outcome{});
    });
}

}  // namespace lockcore
