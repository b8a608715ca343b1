#include <proto/lease_rounds.hpp>

#include <lockcore/types.hpp>
#include <proto/lease_id.hpp>
#include <proto/lease_record.hpp>

#include <algorithm>
#include <limits>

namespace lockcore {

void validity_memory::remember(const lease_claims& claims, validity_time until) {
    if (validities_.size() >= validities_max && !validities_.contains(claims.attempt_id)) return;
    known_validity& known = validities_[claims.attempt_id];
    known = {claims.token, std::max(known.until, until)};
}

bool validity_memory::is_valid(const lease_claims& claims, validity_time now) const {
    const auto known = validities_.find(claims.attempt_id);
    return known != validities_.end() && known->second.token == claims.token && now < known->second.until;
}

void validity_memory::forget_expired(validity_time now) {
    std::erase_if(validities_, [now](const auto& entry) { return entry.second.until <= now; });
}

failure validity_memory::why_lost(const lease_claims& claims, validity_time now) const {
    const auto because = [](const char* detail) { return make_failure(errc::lease_lost, detail); };
    if (has_ended(claims.hold.str())) return because("This hold of the lease was released before.");
    if (has_ended(claims.attempt_id.str())) return because("The lease was revoked.");
    const auto known = validities_.find(claims.attempt_id);
    if (known != validities_.end() && known->second.until <= now)
        return because("The lease has expired: it was not renewed in time.");
    return because(
        "No majority of the nodes holds this lease, or this hold of it, any more: it has expired, or was released or "
        "revoked through another gateway.");
}

void validity_memory::add_ended(std::string_view id) {
    if (!ended_.insert(hash_of(id)).second) return;
    ended_in_order_.push_back(hash_of(id));
    if (ended_in_order_.size() <= ended_max) return;
    ended_.erase(ended_in_order_.front());
    ended_in_order_.pop_front();
}

lease_rounds::lease_rounds(core_context& ctx, link_span links, const std::string& wake_mark,
                           validity_memory& validities, wait_queues& queues)
    : ctx_(ctx),
      links_(links),
      wake_mark_(wake_mark),
      validities_(validities),
      queues_(queues),
      repeater_(ctx.settings.max_ttl) {}

lease_call lease_rounds::call_for(const lease_claims& claims) const {
    lease_call call;
    call.resources = all_resources(claims);
    call.shared = claims.shared.size();
    call.attempt_id = claims.attempt_id;
    call.hold = claims.hold;
    call.wake_mark = wake_mark_;
    call.renewals_max = ctx_.settings.max_renewals;
    call.hold_max = ctx_.settings.max_hold;
    return call;
}

void lease_rounds::run(command_kind kind, lease_call call, lease_claims claims, continuation then) {
    start(kind, std::move(call), std::move(claims), true, std::move(then));
}

void lease_rounds::start(command_kind kind, lease_call call, lease_claims claims, bool may_upgrade, continuation then) {
    const auto round = std::make_shared<round_attempt>(ctx_, kind, std::move(call), std::move(claims), links_,
                                                       kind == command_kind::release ? &repeater_ : nullptr);
    if (kind == command_kind::renew) renewing_.emplace(round->claims().attempt_id, round);
    round->start([this, may_upgrade, then = std::move(then)](round_attempt& decided) {
        const bool uncounted = decided.machine().outcome() == majority_round::verdict::uncounted;
        if (!uncounted || !may_upgrade || !validities_.is_valid(decided.claims(), ctx_.now.validity))
            return then(decided);
        upgrade(decided, then);
    });
}

void lease_rounds::upgrade(round_attempt& uncounted, continuation then) {
    uncounted.upgrade([this, then = std::move(then)](round_attempt& round, bool enough) {
        // The old validity is tested last: while it lasts nobody else can have been granted the resources.
        if (!enough || !validities_.is_valid(round.claims(), ctx_.now.validity) || !round.may_top_up())
            return then(round);
        start(round.kind(), round.call(), round.claims(), false, then);
    });
}

void lease_rounds::renew(lease_claims claims, milliseconds ttl, std::string origin, bool kept,
                         std::function<void(result<lease>)> then) {
    lease_call call = call_for(claims);
    call.ttl = ttl;
    if (kept) {
        call.renewals_max = std::numeric_limits<std::uint32_t>::max();
        // The last renewal before the limit exceeds it by up to a ttl; keep() ends the lease at the limit.
        call.hold_max += ttl;
    }
    run(command_kind::renew, std::move(call), std::move(claims),
        [this, ttl, origin = std::move(origin), then = std::move(then)](const round_attempt& round) {
            if (round.machine().outcome() == majority_round::verdict::exhausted)
                return then(make_failure(errc::renewals_exhausted,
                                         "The lease was renewed as often as lease.max_renewals, or held as long as "
                                         "lease.max_hold_ms, allows."));
            if (auto failed = find_failure(round.machine(), round.claims(),
                                           "Too few Redis nodes answered; the lease may have been renewed on some."))
                return then(std::move(*failed));
            const validity_time valid_until = end_of_validity(ttl, round.started_at());
            if (ctx_.remaining_until(valid_until) <= milliseconds{0})
                return then(
                    make_failure(errc::lease_lost, "The nodes took longer to answer than the ttl of the lease."));
            validities_.remember(round.claims(), valid_until);
            ctx_.record(ctx_.make_event(event_kind::lease_renewed, round.claims(), origin, {}, ttl));
            queues_.lease_extended(round.claims(), ttl);
            then(make_lease(round.claims(), ttl, valid_until, round.machine()));
        });
}

void lease_rounds::inspect(lease_claims claims, std::function<void(result<lease>, const majority_round&)> then,
                           bool watches) {
    lease_call call = call_for(claims);
    call.watches = watches;
    run(command_kind::inspect, std::move(call), std::move(claims),
        [this, then = std::move(then)](const round_attempt& round) {
            const majority_round& machine = round.machine();
            if (auto failed = find_failure(machine, round.claims(), "Too few Redis nodes answered."))
                return then(std::move(*failed), machine);
            // The lease is live even if its validity is zero.
            const validity_time valid_until = end_of_validity(machine.remaining(), round.started_at());
            then(make_lease(round.claims(), machine.ttl(), valid_until, machine), machine);
        });
}

void lease_rounds::send(command_kind kind, lease_call call, lease_claims claims) {
    std::make_shared<round_attempt>(ctx_, kind, std::move(call), std::move(claims), links_, &repeater_)->start();
}

std::shared_ptr<round_attempt> lease_rounds::prepare_release(const lease_claims& claims) {
    return std::make_shared<round_attempt>(ctx_, command_kind::release, call_for(claims), claims, links_, &repeater_);
}

std::optional<failure> lease_rounds::find_failure(const majority_round& round, const lease_claims& claims,
                                                  const char* no_quorum) const {
    switch (round.outcome()) {
        case majority_round::verdict::yes:
            return std::nullopt;
        case majority_round::verdict::lost:
            return validities_.why_lost(claims, ctx_.now.validity);
        case majority_round::verdict::uncounted:
            return make_no_quorum(
                "A majority of the nodes has the lease, but too many of them were restarted since it was last granted "
                "or renewed by this gateway. The gateway that did so last can renew it.",
                collect_answers(round, links_));
        default:
            return make_no_quorum(no_quorum, collect_answers(round, links_));
    }
}

lease lease_rounds::make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until) const {
    lease out;
    out.id = sign_lease_id(claims, ctx_.settings.cell, ctx_.mac);
    out.claims = std::move(claims);
    out.ttl = ttl;
    out.valid_until = valid_until;
    out.validity = std::max(ctx_.remaining_until(valid_until), milliseconds{0});
    out.expires_at = ctx_.now.wall + out.validity;
    out.renewals_left = ctx_.settings.max_renewals;
    out.nodes = links_.size();
    return out;
}

lease lease_rounds::make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                               const majority_round& round) const {
    lease out = make_lease(std::move(claims), ttl, valid_until);
    out.hold_count = std::max(static_cast<std::uint32_t>(round.holds()), 1U);
    out.renewals_left -= static_cast<std::uint32_t>(std::min<std::uint64_t>(round.value(), out.renewals_left));
    out.nodes_granted = round.yes();
    return out;
}

void lease_rounds::stop_top_ups(const nonce& attempt, const hold_id* hold) {
    const auto [first, last] = renewing_.equal_range(attempt);
    for (auto renewal = first; renewal != last; ++renewal) {
        const auto round = renewal->second.lock();
        if (round && (!hold || round->claims().hold == *hold)) round->disable_top_ups();
    }
}

void lease_rounds::tick() {
    repeater_.tick(ctx_.now);
    std::erase_if(renewing_, [](const auto& entry) { return entry.second.expired(); });
}

}  // namespace lockcore
