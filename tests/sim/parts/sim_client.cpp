#include <sim/parts/sim_client.hpp>

#include <algorithm>

namespace sim {

namespace input = lockcore::input;
using lockcore::errc;
using lockcore::lease;
using lockcore::result;

sim_client::sim_client(context& ctx, checkers& check, gateway_interface& gateways, std::uint32_t index,
                       drifting_clock clock)
    : ctx_(ctx), check_(check), gateways_(gateways), index_(index), clock_(clock) {
    holder_.principal = "clients";
    if (ctx.config.database_fails()) is_direct_ = ctx.rng.chance(ctx.config.direct_per_thousand);
}

void sim_client::start() {
    if (ctx_.rng.chance(ctx_.config.owner_per_thousand))
        holder_.owner = "c" + std::to_string(shares_owner() ? 0 : index_);
    sleep(state::idle, ctx_.rng.draw_around(ctx_.config.think_time));
}

void sim_client::require_grant(std::uint32_t resource) {
    must_be_granted_ = true;
    required_resource_ = resource;
    sleep(state::idle, milliseconds{2} + ctx_.rng.draw_around(milliseconds{5}));
}

// --- the loop

void sim_client::sleep(state next, microseconds span) {
    state_ = next;
    ++generation_;
    ctx_.events.schedule_in(
        span, {.kind = event_kind::client_timer, .actor = static_cast<std::uint8_t>(index_), .a = generation_});
}

microseconds sim_client::pause() {
    if (ctx_.config.freeze_per_thousand > 0 && !stopping_ && ctx_.rng.chance(ctx_.config.freeze_per_thousand))
        return ctx_.rng.draw_around(ctx_.config.freeze_time);
    return ctx_.rng.draw_around(ctx_.config.think_time);
}

void sim_client::on_timer(std::uint32_t generation) {
    if (generation != generation_) return;
    switch (state_) {
        case state::idle:
            if (stopping_) {
                state_ = state::finished;
            } else if (must_be_granted_) {
                acquire(static_cast<resource_set>(1U << required_resource_), ctx_.config.max_ttl);
            } else if (past_.nonce != 0 && ctx_.rng.chance(ctx_.config.past_lease_per_thousand)) {
                use_past_lease();
            } else {
                acquire(draw_resources(), draw_ttl());
            }
            return;
        case state::calling:  // no answer in time
            if (repeat_elsewhere()) return;
            if (asked_ == op_kind::cancel) return cancel_request();
            if (asked_ == op_kind::acquire && ctx_.config.cancels_requests() && !must_be_granted_) {
                // The gateway may learn that the caller is gone before the cancellation arrives, afterwards or never.
                if (ctx_.rng.chance(500)) gateways_.cancel_call(index_);
                return cancel_request();
            }
            gateways_.cancel_call(index_);
            ctx_.hit(probe::call_cancelled);
            if (must_be_granted_ && asked_ == op_kind::acquire && asked_lease_.wait > milliseconds{0})
                check_.waiter_not_answered(index_);
            if (asked_ == op_kind::acquire) {
                repeat_later();
                return forget_lease();
            }
            if (asked_ == op_kind::release && lease_.release_requested) return forget_lease();
            return sleep_holding();
        case state::holding:
            return choose_op();
        case state::shopping: {  // the pause between read and write is over
            writing_ = true;
            shop::visit sale = read_;
            sale.generation = generation_;
            sale.statement.token = lease_.token;
            sale.statement.writes = true;
            --sale.statement.units;
            gateways_.visit_shop(std::move(sale));
            if (!must_be_granted_ && ctx_.rng.chance(50)) {
                ctx_.hit(probe::write_outcome_unknown);
                lease_.write_under_way = true;
                unknown_outcome_tokens_.insert(lease_.token);
                release();
            }
            return;
        }
        case state::finished:
            return;
    }
}

void sim_client::choose_op() {
    if (must_be_granted_ && !was_granted_ && !lease_.release_requested) return work();
    if (stopping_ || must_be_granted_ || ops_left_ == 0) return lease_.release_requested ? forget_lease() : release();
    --ops_left_;
    if (ctx_.now() > lease_.until) {
        ctx_.hit(probe::lease_expired_unnoticed);
        if (ctx_.rng.chance(300)) return forget_lease();
    }
    // It may inspect a lease that it released, but not use it.
    if (lease_.release_requested && !ctx_.is_active(mutation::released_lease_used))
        return ctx_.rng.chance(700) ? inspect() : forget_lease();
    std::uint32_t total_weight = 0;
    for (const std::uint32_t weight : ctx_.config.op_weight)
        total_weight += weight;
    std::uint32_t drawn = ctx_.rng.below(total_weight);
    for (std::size_t i = 0; i < op_count; ++i) {
        const std::uint32_t weight = ctx_.config.op_weight[i];
        if (drawn < weight) return (this->*ops[i].run)();
        drawn -= weight;
    }
}

/// Forgets the lease. Its remaining validity still counts in C4, because the holder may still be using it.
void sim_client::forget_lease() {
    if (lease_.nonce != 0) past_ = lease_;
    lease_ = {};
    if (must_be_granted_) return sleep(state::idle, ctx_.rng.draw_around(microseconds{30'000}));
    // Each refusal in succession doubles the pause.
    refusals_ = std::min(refusals_ + 1, 5U);
    sleep(state::idle, ctx_.rng.draw_around(ctx_.config.think_time * (std::int64_t{1} << refusals_)));
}

/// Inspects or renews an earlier lease, whose resources another client may hold by now.
void sim_client::use_past_lease() {
    lease_ = past_;
    past_ = {};
    ops_left_ = 1 + ctx_.rng.below(4);
    if (!lease_.release_requested && ctx_.rng.chance(300)) return renew();
    inspect();
}

milliseconds sim_client::draw_ttl() {
    // Half of them are short in runs with repeats, so that a node that misses a renewal deletes its key.
    const bool is_short = ctx_.config.repeated_elsewhere_per_thousand > 0 && ctx_.rng.chance(500);
    return ctx_.rng.between(ctx_.config.ttl_low, is_short ? ctx_.config.ttl_low * 2 : ctx_.config.max_ttl);
}

resource_set sim_client::draw_resources() {
    resource_set set = static_cast<resource_set>(1U << ctx_.rng.below(ctx_.config.resources));
    while (ctx_.config.several_per_thousand > 0 && ctx_.rng.chance(ctx_.config.several_per_thousand))
        set |= static_cast<resource_set>(1U << ctx_.rng.below(ctx_.config.resources));
    if (ctx_.config.shared_per_thousand == 0) return set;
    resource_set out = 0;
    for_each_resource(set, [&](std::uint32_t r) {
        const bool shares = only_reads_ || ctx_.rng.chance(ctx_.config.shared_per_thousand);
        out |= static_cast<resource_set>(1U << (r + (shares ? shared_bits : 0)));
    });
    return out;
}

// --- calls to a gateway

void sim_client::ask(op_kind kind, lockcore::core_input asked, milliseconds wait,
                     std::optional<std::uint32_t> gateway) {
    state_ = state::calling;
    ++generation_;
    asked_ = kind;
    asked_at_ = ctx_.now();
    // Gateway 0 is the one whose answers are late.
    if (!gateway && may_repeat_elsewhere() && ctx_.rng.chance(500)) gateway = 0;
    asked_gateway_ = gateway.value_or(ctx_.rng.below(ctx_.config.gateways));
    if (kind == op_kind::acquire) gateways_with_request_ |= 1U << asked_gateway_;
    gateways_.ask(asked_gateway_, {index_, generation_, std::move(asked)});
    microseconds call_timeout =
        ctx_.rng.between(microseconds(ctx_.config.node_timeout), microseconds(ctx_.config.node_timeout) * 8);
    if (may_repeat_elsewhere() && ctx_.rng.chance(800))
        call_timeout = ctx_.rng.between(2 * ctx_.config.delay_base, microseconds(ctx_.config.node_timeout));
    if (wait > milliseconds{0}) {
        // Some clients cancel before the wait is over.
        const bool leaves_early = !must_be_granted_ && ctx_.rng.chance(300);
        call_timeout += leaves_early ? ctx_.rng.between(microseconds{0}, microseconds(wait)) : microseconds(wait);
        if (must_be_granted_) call_timeout += 24 * microseconds(ctx_.config.node_timeout) + ctx_.config.slow * 8;
    }
    ctx_.events.schedule_in(
        call_timeout, {.kind = event_kind::client_timer, .actor = static_cast<std::uint8_t>(index_), .a = generation_});
}

lockcore::acquire_request sim_client::make_request(resource_set set, milliseconds ttl) {
    lockcore::acquire_request out;
    out.resources = names_of(ctx_.config, set);
    out.shared = names_of(ctx_.config, set >> shared_bits);
    out.holder = holder_;
    out.ttl = ttl;
    if (ctx_.rng.chance(ctx_.config.keys_per_thousand))
        out.idempotency_key = "c" + std::to_string(index_) + "-" + std::to_string(++keys_);
    repeats_ = 0;
    gateways_with_request_ = 0;
    out.kept = !must_be_granted_ && ctx_.rng.chance(100) && !ctx_.config.cancels_requests();
    return out;
}

void sim_client::acquire(resource_set set, milliseconds ttl) {
    asked_lease_ = make_request(set, ttl);
    if (ctx_.rng.chance(ctx_.config.waits_per_thousand))
        asked_lease_.wait = std::chrono::ceil<milliseconds>(ctx_.rng.draw_around(ctx_.config.wait)) + milliseconds{1};
    if (to_repeat_) {
        asked_lease_ = *to_repeat_;
        gateways_with_request_ = ~0U;
    }
    to_repeat_.reset();
    if (must_be_granted_ && ctx_.rng.chance(300))
        asked_lease_.wait = ctx_.rng.between(milliseconds{1}, milliseconds{ctx_.rng.chance(500) ? 60'000 : 500});
    ask(op_kind::acquire, input::acquire{{}, asked_lease_}, asked_lease_.wait);
}

/// Repeats the request of a lease with the same idempotency key, for it may have been granted.
void sim_client::repeat_later() {
    if (!asked_lease_.idempotency_key.empty() && ctx_.rng.chance(800)) to_repeat_ = asked_lease_;
}

/// Cancels the request that was not answered in time, or whose answer the caller does not use.
void sim_client::cancel_request() {
    ask(op_kind::cancel, input::cancel_request{{}, asked_lease_}, milliseconds{0},
        ctx_.rng.chance(500) ? asked_gateway_ : other_gateway());
}

void sim_client::on_request_cancelled(const result<lockcore::release_outcome>& answer) {
    if (!answer) return cancel_request();
    ctx_.hit(probe::request_cancelled);
    gateways_.request_cancelled(asked_lease_, gateways_with_request_ == 1U << asked_gateway_);
    forget_lease();
}

bool sim_client::shares_owner() const {
    return ctx_.config.shares_owner && index_ < 2;
}

bool sim_client::may_repeat_elsewhere() const {
    return ctx_.config.repeated_elsewhere_per_thousand > 0 && !must_be_granted_ && !stopping_ &&
           (asked_ == op_kind::acquire || asked_ == op_kind::reenter) && !asked_lease_.idempotency_key.empty();
}

void sim_client::note_grant(const lease& granted) {
    ctx_.hit(granted.repeated ? probe::repeat_answered : granted.reentrant ? probe::hold_added : probe::granted);
    const std::uint32_t often = ctx_.config.flushed_after_repeat_per_thousand;
    if (!granted.repeated || often == 0 || !ctx_.rng.chance(often)) return;
    // A node forgets while the undo of the first attempt is under way.
    ctx_.events.schedule_in(
        ctx_.rng.draw_around(ctx_.config.node_timeout),
        {.kind = event_kind::node_flushed, .actor = static_cast<std::uint8_t>(ctx_.rng.below(ctx_.config.nodes))});
}

/// Returns whether the gateway waited for nodes before it answered, so that some may have executed the request.
bool sim_client::timed_out() const {
    return ctx_.now() - asked_at_ >= ctx_.config.node_timeout;
}

/// Repeats the request of a lease or of a further hold at another gateway at once,
/// while the first attempt or its undo is under way.
/// Sometimes the first gateway does not learn that nobody waits for its answer. Returns false if it doesn't.
bool sim_client::repeat_elsewhere() {
    if (!may_repeat_elsewhere() || repeats_ == 3 || !ctx_.rng.chance(ctx_.config.repeated_elsewhere_per_thousand))
        return false;
    ++repeats_;
    ctx_.hit(probe::repeated_elsewhere);
    if (ctx_.rng.chance(500)) gateways_.cancel_call(index_);
    ask(asked_, input::acquire{{}, asked_lease_}, asked_lease_.wait, other_gateway());
    return true;
}

/// Returns any gateway but the one that was asked last.
std::uint32_t sim_client::other_gateway() {
    return (asked_gateway_ + 1 + ctx_.rng.below(ctx_.config.gateways - 1)) % ctx_.config.gateways;
}

/// Takes a lease that the client did not have, or a lease instead of the one that it had.
void sim_client::take_lease(const lease& granted) {
    const sim_time until = ctx_.now() + clock_.real(granted.validity);
    lease_ = {};
    lease_.nonce = to_number(granted.claims.attempt_id);
    lease_.token = value_of(granted.claims.token);
    lease_.resources = set_of(granted.claims);
    lease_.ttl = granted.ttl;
    lease_.write_under_way = unknown_outcome_tokens_.contains(lease_.token);  // another hold: the same token
    lease_.until = until;
    lease_.holds = {{granted.claims, until}};
    lease_.confirmations = {{asked_at_, until}};
    lease_.answered = granted;
    lease_.gateway = asked_gateway_;
    check_.lease_valid(lease_.resources, lease_.nonce, until);
    refusals_ = 0;
    ops_left_ = 1 + ctx_.rng.below(ctx_.config.ops_max);
    was_granted_ = was_granted_ || (must_be_granted_ && !ctx_.config.database_fails());
    sleep(state::holding, must_be_granted_ ? microseconds{0} : pause());
}

void sim_client::on_acquired(const result<lease>& answer) {
    if (answer) {
        note_grant(*answer);
        if (asked_lease_.wait > milliseconds{0} &&
            ctx_.now() - asked_at_ > 4 * ctx_.config.delay_base + milliseconds{5})
            ctx_.hit(probe::waiter_granted);
        if (asked_lease_.resources.size() + asked_lease_.shared.size() > 1) ctx_.hit(probe::several_granted);
        if (ctx_.config.cancels_requests() && !must_be_granted_ && ctx_.rng.chance(100)) {
            ctx_.hit(probe::own_grant_cancelled);
            return cancel_request();
        }
        return take_lease(*answer);
    }
    const lockcore::failure& refused = answer.error();
    ctx_.hit(refused.code == errc::resource_locked ? probe::locked : probe::no_quorum);
    if (refused.queue_position > 0) ctx_.hit(probe::waiter_timed_out);
    // Tries again just when the holder's lease expires.
    if (refused.code == errc::resource_locked && refused.remaining > milliseconds{0} && ctx_.rng.chance(500)) {
        lease_ = {};
        return sleep(state::idle, refused.remaining + ctx_.rng.draw_around(milliseconds{1}));
    }
    if (refused.code == errc::no_quorum && timed_out() && repeat_elsewhere()) return;
    if (ctx_.config.cancels_requests() && repeats_ > 0) return cancel_request();  // another gateway may still grant it
    if (refused.code == errc::no_quorum) repeat_later();
    forget_lease();
}

void sim_client::answer(const call& c, lockcore::call_result answered) {
    if (state_ != state::calling || c.generation != generation_) return on_late_answer(c, answered);
    ctx_.note("client is answered", index_, static_cast<std::uint64_t>(asked_), answered.index());
    switch (asked_) {
        case op_kind::acquire:
            return on_acquired(std::get<result<lease>>(answered));
        case op_kind::reenter:
            return on_acquired_again(std::get<result<lease>>(answered));
        case op_kind::renew:
        case op_kind::inspect:
            return on_confirmed(std::get<result<lease>>(answered));
        case op_kind::keep:
            return on_kept(std::get<result<lockcore::keep_step>>(answered));
        case op_kind::close:
            return on_closed(std::get<result<lockcore::close_outcome>>(answered));
        case op_kind::find:
            return on_found(std::get<result<lockcore::found_lease>>(answered));
        case op_kind::release:
            return on_released(std::get<result<lockcore::release_outcome>>(answered));
        case op_kind::revoke:
            return sleep_holding();
        case op_kind::cancel:
            return on_request_cancelled(std::get<result<lockcore::release_outcome>>(answered));
    }
}

}  // namespace sim
