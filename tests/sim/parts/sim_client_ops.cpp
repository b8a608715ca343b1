#include <sim/parts/sim_client.hpp>

#include <algorithm>

// What a client does with a lease.

namespace sim {

namespace input = lockcore::input;
using lockcore::errc;
using lockcore::hold_id;
using lockcore::lease;
using lockcore::result;

const std::array<sim_client::op, op_count> sim_client::ops = {{
    {"work", &sim_client::work},
    {"renew", &sim_client::renew},
    {"inspect", &sim_client::inspect},
    {"release", &sim_client::release},
    {"wait past lease", &sim_client::wait_past_lease},
    {"abandon lease", &sim_client::abandon_lease},
    {"acquire again", &sim_client::acquire_again},
    {"keep", &sim_client::keep},
    {"close", &sim_client::close},
    {"revoke another", &sim_client::revoke_another},
}};

/// Returns a hold that the client has; if none is left, the one that it released last.
const lockcore::lease_claims& sim_client::pick_hold() {
    if (lease_.holds.empty()) return lease_.last_released;
    return lease_.holds[ctx_.rng.below(static_cast<std::uint32_t>(lease_.holds.size()))].claims;
}

sim_time sim_client::valid_until(const hold_id& id) const {
    for (const hold& h : lease_.holds) {
        if (h.claims.hold == id) return h.until;
    }
    return sim_time{0};
}

void sim_client::extend_validity(const lease& confirmed) {
    const sim_time until = ctx_.now() + clock_.real(confirmed.validity);
    for (hold& h : lease_.holds) {
        if (h.claims.hold == confirmed.claims.hold) h.until = std::max(h.until, until);
        lease_.until = std::max(lease_.until, h.until);
    }
    // INSPECT may confirm it for a shorter time than an answer before: a node has a copy with less time.
    std::erase_if(lease_.confirmations, [until](const confirmation& c) { return c.until <= until; });
    lease_.confirmations.push_back({asked_at_, until});
    lease_.answered = confirmed;
    lease_.gateway = asked_gateway_;
    if (!lease_.release_requested) check_.lease_valid(lease_.resources, lease_.nonce, lease_.until);
}

/// A gateway says that the lease is lost.
void sim_client::end_of_lease_reported(const hold_id& id) {
    if (lease_.release_requested || ctx_.now() >= valid_until(id)) return;
    std::erase_if(lease_.confirmations, [now = ctx_.now()](const confirmation& c) { return c.until <= now; });
    check_.lease_reported_lost(index_, lease_.nonce, lease_.token, lease_.confirmations.back().since);
}

// --- RENEW, INSPECT, keep

void sim_client::renew() {
    // The new ttl may be longer or shorter.
    const bool another_ttl = ctx_.rng.chance(ctx_.config.other_ttl_per_thousand);
    const milliseconds ttl = another_ttl ? draw_ttl() : lease_.ttl;
    if (ttl < lease_.ttl) ctx_.hit(probe::renewed_for_less);
    const lockcore::lease_claims& claims = pick_hold();
    asked_hold_ = claims.hold;
    ask(op_kind::renew, input::renew{{}, claims, ttl, {}});
}

void sim_client::inspect() {
    const lockcore::lease_claims& claims = pick_hold();
    asked_hold_ = claims.hold;
    ask(op_kind::inspect, input::inspect{{}, claims});
}

void sim_client::on_confirmed(const result<lease>& answer) {
    const bool renewed = asked_ == op_kind::renew;
    if (answer && answer->validity > milliseconds{0}) {
        ctx_.hit(renewed ? probe::renewed : probe::inspected_yes);
        if (renewed) lease_.ttl = answer->ttl;
        extend_validity(*answer);
        return sleep_holding();
    }
    if (!answer && answer.error().code == errc::lease_lost) {
        // Not lost: the majority renewed it, but the new validity is over already.
        const bool took_too_long = answer.error().detail.starts_with("The nodes took longer");
        if (!took_too_long) end_of_lease_reported(asked_hold_);
        ctx_.hit(took_too_long ? probe::validity_used_up : renewed ? probe::renew_lost : probe::inspected_lost);
        if (!took_too_long || ctx_.rng.chance(800)) return forget_lease();
    } else if (!answer && answer.error().code == errc::renewals_exhausted) {
        ctx_.hit(probe::renewals_exhausted);
    }
    if (answer && ctx_.rng.chance(800)) return forget_lease();  // no validity is left
    sleep_holding();
}

/// Has the gateway that answered last renew the lease.
void sim_client::keep() {
    if (!lease_.answered || lease_.holds.empty()) return renew();
    lockcore::kept_lease kept(*lease_.answered);
    if (ctx_.rng.chance(200)) kept.limit_hold(ctx_.config.max_ttl * 2);
    asked_hold_ = kept.current.claims.hold;
    if (valid_until(asked_hold_) == sim_time{0}) return renew();  // that hold was released
    ask(op_kind::keep, input::keep{{}, kept, {}}, kept.current.ttl, lease_.gateway);
}

void sim_client::on_kept(const result<lockcore::keep_step>& answer) {
    if (!answer) return sleep_holding();
    switch (answer->result) {
        case lockcore::keep_step::outcome::renewed:
            ctx_.hit(probe::kept);
            extend_validity(answer->kept.current);
            if (ops_left_ > 0 && ctx_.rng.chance(700)) return keep();
            return sleep_holding();
        case lockcore::keep_step::outcome::lost:
            // The gateway measures the validity by its own clock.
            if (!answer->reason.starts_with("It expired") && !answer->reason.starts_with("The nodes took longer"))
                end_of_lease_reported(asked_hold_);
            ctx_.hit(probe::keep_lost);
            return forget_lease();
        case lockcore::keep_step::outcome::exhausted:
            ctx_.hit(probe::keep_exhausted);
            return sleep_holding();
    }
}

// --- further holds

/// Acquires the resources that it holds already, as a re-entrant owner does.
void sim_client::acquire_again() {
    if (holder_.owner.empty()) return renew();
    if (lease_.holds.size() >= 3 && ctx_.config.repeated_elsewhere_per_thousand > 0) return release();
    asked_lease_ = make_request(lease_.resources, draw_ttl());
    if (ctx_.rng.chance(ctx_.config.waits_per_thousand)) asked_lease_.wait = milliseconds{1 + ctx_.rng.below(50)};
    ask(op_kind::reenter, input::acquire{{}, asked_lease_}, asked_lease_.wait);
}

void sim_client::on_acquired_again(const result<lease>& answer) {
    if (!answer && answer.error().code == errc::no_quorum && timed_out() && repeat_elsewhere()) return;
    if (!answer) return sleep_holding();
    if (to_number(answer->claims.attempt_id) != lease_.nonce) return on_acquired(answer);  // the previous one had ended
    note_grant(*answer);
    const hold_id& id = answer->claims.hold;
    const auto is_same = [&id](const hold& h) { return h.claims.hold == id; };
    if (std::ranges::none_of(lease_.holds, is_same)) lease_.holds.push_back({answer->claims, {}});
    lease_.ttl = answer->ttl;
    extend_validity(*answer);
    sleep_holding();
}

/// Closes the lease to further holds, as before its last hold is sealed.
void sim_client::close() {
    if (lease_.holds.size() != 1) return release();
    asked_hold_ = lease_.holds.front().claims.hold;
    const input::close_to_new_holds closing{{}, lease_.holds.front().claims};
    ask(op_kind::close, closing);
    if (ctx_.config.repeated_elsewhere_per_thousand == 0 || ctx_.rng.chance(500)) return;
    ctx_.hit(probe::release_with_seal_repeated);
    gateways_.ask(other_gateway(), {index_, generation_, closing});
}

/// The caller has gone on: of a release with a seal that it repeated, it has the other answer. Some fail to seal.
void sim_client::on_late_answer(const call& c, const lockcore::call_result& answered) {
    const auto* closed = std::get_if<result<lockcore::close_outcome>>(&answered);
    if (!closed || !*closed || !(*closed)->closed) return;
    if (ctx_.config.repeated_elsewhere_per_thousand == 0 || ctx_.rng.chance(300)) return;
    const auto& closing = std::get<input::close_to_new_holds>(c.input);
    gateways_.ask(other_gateway(), {index_, generation_, input::reopen{closing.claims, **closed}});
}

void sim_client::on_closed(const result<lockcore::close_outcome>& answer) {
    if (!answer) {
        if (answer.error().code != errc::lease_lost) return sleep_holding();
        end_of_lease_reported(asked_hold_);
        return forget_lease();
    }
    ctx_.hit(answer->closed ? probe::lease_closed : probe::lease_not_closed);
    if (!answer->closed) return sleep_holding();
    if (ctx_.rng.chance(500)) {
        check_.closed(lease_.nonce, asked_hold_);
        return release();
    }
    gateways_.ask(asked_gateway_, {index_, generation_, input::reopen{lease_.holds.front().claims, *answer}});
    sleep_holding();
}

// --- the end of leases

/// Releases a hold; with the last one the client stops using the lease. Sometimes it releases a hold a second time.
void sim_client::release() {
    if (lease_.last_released.attempt_id != lockcore::nonce() && !lease_.holds.empty() && ctx_.rng.chance(200)) {
        ctx_.hit(probe::released_twice);
        return ask(op_kind::release, input::release{{}, lease_.last_released, {}});
    }
    if (lease_.holds.size() > 1 && ctx_.config.repeated_elsewhere_per_thousand > 0)
        std::swap(lease_.holds[ctx_.rng.below(static_cast<std::uint32_t>(lease_.holds.size()))], lease_.holds.back());
    if (!lease_.holds.empty()) {
        lease_.last_released = lease_.holds.back().claims;
        check_.hold_released(lease_.nonce, lease_.last_released.hold);
        lease_.holds.pop_back();
    }
    lease_.until = lease_.holds.empty() ? ctx_.now() : sim_time{0};
    for (const hold& h : lease_.holds)
        lease_.until = std::max(lease_.until, h.until);
    lease_.release_requested = lease_.holds.empty();
    if (lease_.release_requested) check_.end_requested(lease_.nonce);
    if (!ctx_.is_active(mutation::released_lease_used)) check_.lease_valid_only(lease_.nonce, lease_.until);
    ask(op_kind::release, input::release{{}, lease_.last_released, {}});
}

void sim_client::on_released(const result<lockcore::release_outcome>& answer) {
    const bool lost = !answer && answer.error().code == errc::lease_lost;
    ctx_.hit(lost ? probe::release_lost : answer && answer->holds_left > 0 ? probe::hold_released : probe::released);
    if (!lease_.release_requested) return lost ? forget_lease() : sleep_holding();
    if (must_be_granted_) {
        state_ = state::finished;
        return;
    }
    forget_lease();
}

/// Finds the lease of some resource, and revokes it as an operator does.
void sim_client::revoke_another() {
    const auto& name = name_of(ctx_.config, ctx_.rng.below(ctx_.config.resources));
    ask(op_kind::find, input::find_lease{{}, name, std::nullopt});
}

void sim_client::on_found(const result<lockcore::found_lease>& answer) {
    if (!answer || !answer->lease) {
        ctx_.hit(answer ? probe::found_no_lease : probe::no_quorum);
        return sleep_holding();
    }
    ctx_.hit(probe::lease_found);
    if (ctx_.rng.chance(500)) return sleep_holding();
    const lockcore::lease_claims& claims = answer->lease->claims;
    check_.revoked(to_number(claims.attempt_id));
    lockcore::holder actor;
    actor.principal = "operator";
    ask(op_kind::revoke, input::revoke{{}, claims, actor, "a test", {}});
}

void sim_client::wait_past_lease() {
    sleep(state::holding, ctx_.rng.draw_around(microseconds(lease_.ttl)));
}

void sim_client::abandon_lease() {
    forget_lease();
}

// --- selling

void sim_client::work() {
    // It may write only to what it does not share.
    const auto owned = static_cast<resource_set>(lease_.resources & ((1U << shared_bits) - 1));
    if (lease_.write_under_way || shares_owner() || owned == 0) return inspect();
    state_ = state::shopping;
    ++generation_;
    writing_ = false;
    std::uint32_t sold_here[sim_resources_max];
    std::uint32_t count = 0;
    for_each_resource(owned, [&](std::uint32_t r) { sold_here[count++] = r; });
    read_ = {};
    read_.client = index_;
    read_.generation = generation_;
    read_.statement.resource = sold_here[ctx_.rng.below(count)];
    read_.statement.token = lease_.token;
    if (!is_direct_) read_.gateway = ctx_.rng.below(ctx_.config.gateways);
    gateways_.visit_shop(read_);
}

void sim_client::shop_answered(const shop::visit& v) {
    if (state_ != state::shopping || v.generation != generation_) return;
    if (v.unknown && v.statement.writes) unknown_outcome_tokens_.insert(v.statement.token);
    if (!v.accepted) return forget_lease();  // another holds a higher token, or PostgreSQL lets nothing in
    if (writing_) {
        was_granted_ = must_be_granted_;
        return sleep_holding();
    }
    read_ = v;
    sleep(state::shopping, pause());
}

}  // namespace sim
