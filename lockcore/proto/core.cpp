#include <proto/core.hpp>

#include <proto/failures.hpp>
#include <proto/lease_id.hpp>
#include <proto/plausible_epoch.hpp>
#include <proto/validity.hpp>

#include <algorithm>
#include <limits>

namespace lockcore {
namespace {

live_lease make_live_lease(const survey& found, const resource_name& resource) {
    live_lease out;
    const lease_record& record = *found.lease();
    out.claims.attempt_id = record.attempt_id;
    out.claims.token = record.token;
    out.claims.holder = record.holder;
    out.claims.granted_at = record.granted_at;
    out.claims.resources = record.resources.empty() ? std::vector{resource} : record.resources;
    out.hold_count = static_cast<std::uint32_t>(record.holds.count());
    out.renewals = record.renewals;
    out.remaining = found.remaining();
    out.nodes_granted = found.nodes_holding();
    return out;
}

}  // namespace

core::core(const services& with)
    : settings_(with.settings),
      ctx_(with.settings, with.mac, with.random),
      wake_mark_(nonce::from_bits(with.random.next(), 0).str().substr(0, 16)),
      repeater_(with.settings.max_ttl),
      tickets_(with.settings.waiters_max) {
    const cluster_view& nodes = *this;
    for (std::size_t n = 0; n < settings_.nodes.size(); ++n)
        links_.push_back(std::make_unique<node_link>(ctx_, static_cast<node_index>(n), nodes, with.leads));
}

core::~core() = default;

std::vector<core_action> core::step(core_input&& what, const step_time& now) {
    ctx_.now = now;
    std::visit([this](auto& input) { on(std::move(input)); }, what);
    ctx_.run_step_end_calls();
    return std::exchange(ctx_.actions, {});
}

// --- time

void core::on(const input::start&) {
    for (const auto& link : links_)
        link->start();
}

void core::on(const input::stop&) {
    for (const auto& link : links_)
        link->stop();
}

void core::on(const input::tick&) {
    for (const auto& link : links_)
        link->tick();
    repeater_.tick(ctx_.now);
    remove_expired_turns();
    std::erase_if(renewing_, [](const auto& entry) { return entry.second.expired(); });
}

void core::on(const input::timer&) {
    ctx_.timers.run_due(ctx_.now.monotonic);
}

void core::on(const input::flush&) {
    ctx_.needs_flush = false;
    const bool decided = ctx_.run_flush_calls();
    ctx_.run_step_end_calls();
    // Commands that were queued meanwhile are sent with those of the next flush, so that fewer, larger batches are sent.
    if (decided && !std::exchange(sending_delayed_, true)) {
        ctx_.needs_flush = true;
        return;
    }
    sending_delayed_ = false;
    for (const auto& link : links_)
        link->flush();
}

// --- answers

void core::on(const input::connected& what) {
    links_[value_of(what.node)]->connected(what);
}

void core::on(const input::disconnected& what) {
    links_[value_of(what.node)]->disconnected(what);
}

void core::on(input::batch_answered what) {
    node_link& link = *links_[value_of(what.node)];
    link.batch_answered(std::move(what));
}

void core::on(input::node_answered what) {
    node_link& link = *links_[value_of(what.node)];
    link.node_answered(std::move(what));
}

void core::on(input::register_answered what) {
    ctx_.register_answered(std::move(what));
}

// --- live leases

lease_call core::call_for(const lease_claims& claims) const {
    lease_call call;
    call.resources = claims.resources;
    call.attempt_id = claims.attempt_id;
    call.hold = claims.hold;
    call.wake_mark = wake_mark_;
    call.renewals_max = settings_.max_renewals;
    call.hold_max = settings_.max_hold;
    return call;
}

void core::run_round(command_kind kind, lease_call call, lease_claims claims, round_continuation then) {
    start_round(kind, std::move(call), std::move(claims), true, std::move(then));
}

void core::start_round(command_kind kind, lease_call call, lease_claims claims, bool may_upgrade,
                       round_continuation then) {
    auto round = std::make_shared<round_attempt>(ctx_, kind, std::move(call), std::move(claims), links_,
                                                 kind == command_kind::release ? &repeater_ : nullptr);
    if (kind == command_kind::renew) renewing_.emplace(round->claims().attempt_id, round);
    round->start();
    round->done.then(
        [this, may_upgrade, then = std::move(then), &decided = *round] {
            const bool uncounted = decided.machine().outcome() == majority_round::verdict::uncounted;
            if (!uncounted || !may_upgrade || !upgrade(decided, then)) then(decided);
        },
        round);
}

bool core::upgrade(round_attempt& uncounted, round_continuation then) {
    // The claims of a repeated request may have a token that its attempt had before it was complete.
    const auto is_valid = [this, attempt = uncounted.claims().attempt_id, token = uncounted.claims().token] {
        const auto known = validities_.find(attempt);
        return known != validities_.end() && known->second.token == token && ctx_.now.validity < known->second.until;
    };
    if (!is_valid()) return false;
    uncounted.upgrade([this, is_valid, &uncounted, then = std::move(then)](bool enough) {
        // The old validity is tested last: while it lasts nobody else can have been granted the resources.
        if (!enough || !is_valid() || !uncounted.may_top_up()) return then(uncounted);
        start_round(uncounted.kind(), uncounted.call(), uncounted.claims(), false, then);
    });
    return true;
}

void core::remember_validity(const lease_claims& claims, validity_time until) {
    if (validities_.size() >= validities_max && !validities_.contains(claims.attempt_id)) return;
    known_validity& known = validities_[claims.attempt_id];
    known = {claims.token, std::max(known.until, until)};
}

void core::forget_expired_validities() {
    std::erase_if(validities_, [this](const auto& entry) { return entry.second.until <= ctx_.now.validity; });
}

void core::on(input::renew what) {
    renew(std::move(what.claims), what.ttl, std::move(what.trace_id), false,
          [this, call = what.call](result<lease> outcome) { answer(call, std::move(outcome)); });
}

void core::renew(lease_claims claims, milliseconds ttl, std::string trace_id, bool kept,
                 std::function<void(result<lease>)> then) {
    lease_call call = call_for(claims);
    call.ttl = ttl;
    if (kept) {
        call.renewals_max = std::numeric_limits<std::uint32_t>::max();
        // The last renewal before the limit exceeds it by up to a ttl; keep() ends the lease at the limit.
        call.hold_max += ttl;
    }
    run_round(
        command_kind::renew, std::move(call), std::move(claims),
        [this, ttl, trace_id = std::move(trace_id), then = std::move(then)](const round_attempt& round) {
            if (round.machine().outcome() == majority_round::verdict::exhausted)
                return then(make_failure(errc::renewals_exhausted,
                                         "The lease was renewed as often as lease.max_renewals, or held as long as "
                                         "lease.max_hold_ms, allows."));
            if (auto failed = round_failure(round.machine(), round.claims(),
                                            "Too few Redis nodes answered; the lease may have been renewed on some."))
                return then(std::move(*failed));
            const validity_time valid_until = end_of_validity(ttl, round.started_at());
            if (remaining_until(valid_until) <= milliseconds{0})
                return then(
                    make_failure(errc::lease_lost, "The nodes took longer to answer than the ttl of the lease."));
            remember_validity(round.claims(), valid_until);
            record(event_kind::lease_renewed, round.claims(), trace_id, {}, ttl);
            if (const auto t = turns_.find(round.claims().resources.front().str()); t != turns_.end())
                t->second.hand_over_expires_at = ctx_.now.monotonic + ttl;
            then(make_lease(round.claims(), ttl, valid_until, round.machine()));
        });
}

void core::on(input::inspect what) {
    inspect(std::move(what.claims),
            [this, call = what.call](result<lease> outcome, const auto&) { answer(call, std::move(outcome)); });
}

void core::inspect(lease_claims claims, std::function<void(result<lease>, const majority_round&)> then, bool watches) {
    lease_call call = call_for(claims);
    call.watches = watches;
    run_round(command_kind::inspect, std::move(call), std::move(claims),
              [this, then = std::move(then)](const round_attempt& round) {
                  const majority_round& machine = round.machine();
                  if (auto failed = round_failure(machine, round.claims(), "Too few Redis nodes answered."))
                      return then(std::move(*failed), machine);
                  // The lease is live even if its validity is zero.
                  const validity_time valid_until = end_of_validity(machine.remaining(), round.started_at());
                  then(make_lease(round.claims(), machine.ttl(), valid_until, machine), machine);
              });
}

std::optional<failure> core::round_failure(const majority_round& round, const lease_claims& claims,
                                           const char* no_quorum) const {
    switch (round.outcome()) {
        case majority_round::verdict::yes:
            return std::nullopt;
        case majority_round::verdict::lost:
            return lease_is_lost(claims);
        case majority_round::verdict::uncounted:
            return make_no_quorum(
                "A majority of the nodes has the lease, but too many of them were restarted since it was last granted "
                "or renewed by this gateway. The gateway that did so last can renew it.",
                collect_answers(round, links_));
        default:
            return make_no_quorum(no_quorum, collect_answers(round, links_));
    }
}

milliseconds core::remaining_until(validity_time end) const {
    return std::chrono::floor<milliseconds>(end - ctx_.now.validity);
}

void core::set_validity(lease& granted, validity_time valid_until) const {
    granted.valid_until = valid_until;
    granted.validity = std::max(remaining_until(valid_until), milliseconds{0});
    granted.expires_at = ctx_.now.wall + granted.validity;
}

failure core::lease_is_lost(const lease_claims& claims) const {
    const auto because = [](const char* detail) { return make_failure(errc::lease_lost, detail); };
    if (released_.contains(claims.hold.str())) return because("This hold of the lease was released before.");
    if (released_.contains(claims.attempt_id.str())) return because("The lease was revoked.");
    const auto known = validities_.find(claims.attempt_id);
    if (known != validities_.end() && known->second.until <= ctx_.now.validity)
        return because("The lease has expired: it was not renewed in time.");
    return because(
        "No majority of the nodes holds this lease, or this hold of it, any more: it has expired, or was released or "
        "revoked through another gateway.");
}

lease core::make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                       const majority_round& round) const {
    lease out;
    out.id = sign_lease_id(claims, settings_.cell, ctx_.mac);
    out.claims = std::move(claims);
    out.hold_count = std::max(static_cast<std::uint32_t>(round.holds()), 1U);
    out.ttl = ttl;
    set_validity(out, valid_until);
    const std::uint64_t renewals = round.value();
    out.renewals_left =
        renewals >= settings_.max_renewals ? 0 : settings_.max_renewals - static_cast<std::uint32_t>(renewals);
    out.nodes_granted = round.yes();
    out.nodes = links_.size();
    return out;
}

// --- reading leases

void core::on(input::find_lease what) {
    const link_span links(links_);
    const std::size_t first = what.only ? value_of(*what.only) : 0;
    const link_span asked = what.only ? links.subspan(first, 1) : links;
    const auto attempt = std::make_shared<survey_attempt>(ctx_, std::move(what.resource), asked, first);
    attempt->start();
    attempt->done.then(
        [this, call = what.call, &found = *attempt] {
            using answer_type = result<std::optional<live_lease>>;
            switch (found.machine().outcome()) {
                case survey::verdict::found:
                    return answer(call, answer_type(make_live_lease(found.machine(), found.call().resources.front())));
                case survey::verdict::none:
                    return answer(call, answer_type(std::optional<live_lease>()));
                case survey::verdict::occupied:
                    return answer(
                        call, answer_type(occupied_by_another_value(found.answers(), found.machine().occupied(), "")));
                default:
                    return answer(call, answer_type(make_no_quorum("Too few Redis nodes answered.", found.answers())));
            }
        },
        attempt);
}

failure core::occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                        const std::string& bound) {
    failure f = make_failure(errc::resource_locked, "A value that is no lease occupies the resource's key on " + bound +
                                                        std::to_string(nodes.count()) + " of " +
                                                        std::to_string(answers.size()) + " nodes.");
    for (std::size_t n = 0; n < answers.size(); ++n) {
        if (nodes.test(n)) answers[n].answer = "occupied by another value";
    }
    f.answers = std::move(answers);
    return f;
}

void core::on(input::list what) {
    const auto listing = std::make_shared<list_attempt>(ctx_, std::move(what.cursor), std::move(what.pattern),
                                                        *links_[value_of(what.node)]);
    listing->start();
    listing->done.then(
        [this, call = what.call, &listed = *listing] {
            if (listed.part()) return answer(call, result<list_part>(*listed.part()));
            answer(call, result<list_part>(make_no_quorum("The node did not list its leases.", {})));
        },
        listing);
}

// --- nodes

std::string core::find_duplicate(node_index node, const std::string& run_id) const {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        // Of two nodes that are one server, the one that already votes stays a voter.
        if (n != value_of(node) && !run_id.empty() && links_[n]->run_id() == run_id && links_[n]->is_voting())
            return links_[n]->name();
    }
    return {};
}

epoch core::highest_epoch() const {
    epoch highest{};
    for (const auto& link : links_)
        highest = std::max(highest, link->observed_epoch());
    return highest;
}

epoch core::highest_plausible_epoch(node_index node) const {
    if (links_.size() == 1) return epoch{epochs_max - 1};  // there is nothing to compare with
    epoch others{};
    for (std::size_t n = 0; n < links_.size(); ++n) {
        if (n != value_of(node)) others = std::max(others, links_[n]->claimed_epoch());
    }
    return lockcore::highest_plausible_epoch(others, ctx_.known_epoch);
}

std::vector<fast_readmission::source> core::find_sources(node_index node, std::size_t failed_tries) const {
    const std::size_t enough = links_.size() - majority_of(links_.size()) + 1;
    const std::size_t wanted = failed_tries == 0 ? links_.size() : enough;
    std::vector<fast_readmission::source> out;
    for (std::size_t i = 0; i < links_.size() && out.size() < wanted; ++i) {
        const std::size_t n = (failed_tries + i) % links_.size();
        if (n == value_of(node) || !links_[n]->is_voting()) continue;
        const auto ask = [link = links_[n].get()](node_request::any request,
                                                  std::function<void(node_response::any)> then) {
            link->ask(std::move(request), std::move(then));
        };
        out.push_back({links_[n]->run_id(), ask});
    }
    if (out.size() < enough) out.clear();
    return out;
}

// --- events

event core::make_event(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                       milliseconds ttl) const {
    event e;
    e.kind = kind;
    e.at = ctx_.now.wall;
    e.resources = claims.resources;
    e.token = claims.token;
    e.actor = claims.holder;
    e.trace_id = trace_id;
    e.detail = std::move(detail);
    e.ttl = ttl;
    e.granted_at = claims.granted_at;
    return e;
}

void core::record(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                  milliseconds ttl) {
    ctx_.record(make_event(kind, claims, trace_id, std::move(detail), ttl));
}

}  // namespace lockcore
