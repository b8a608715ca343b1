#include <sim/parts/sim_gateway.hpp>

#include <bit>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::node_reply;
using lockcore::reply_status;

command_kind command_of(call_kind kind) {
    switch (kind) {
        case call_kind::acquire:
            return command_kind::acquire;
        case call_kind::renew:
            return command_kind::renew;
        case call_kind::inspect:
            return command_kind::inspect;
        case call_kind::release:
            return command_kind::release;
    }
    return command_kind::acquire;
}

}  // namespace

sim_gateway::sim_gateway(context& ctx, network& net, epoch_register& epochs, checkers& check, callers& clients,
                         std::vector<sim_node>& nodes, std::uint32_t index, drifting_clock clock)
    : ctx_(ctx), net_(net), check_(check), clients_(clients), nodes_(nodes), index_(index), clock_(clock) {
    for (std::uint32_t n = 0; n < ctx.set.nodes; ++n)
        links_.push_back(std::make_unique<sim_link>(ctx, net, epochs, *this, index, n));
}

void sim_gateway::start() {
    runs_ = true;
    ++incarnation_;
    paused_until_ = sim_time{0};
    for (auto& link : links_)
        link->open();
}

void sim_gateway::crash() {
    if (attempts_.size() > free_.size()) ctx_.hit(probe::gateway_crashed_with_attempts);
    runs_ = false;
    net_.gateway_crashed(index_);
    for (auto& link : links_)
        link->forget();
    attempts_.clear();
    free_.clear();
    if (!waiters_.empty()) ctx_.hit(probe::gateway_crashed_with_waiters);
    waiters_.clear();
    queues_.fill(std::nullopt);
    highest_ = {};
}

void sim_gateway::pause_until(sim_time until) {
    if (attempts_.size() > free_.size() && until - ctx_.now() > ctx_.set.ttl_low)
        ctx_.hit(probe::gateway_paused_past_ttl);
    paused_until_ = std::max(paused_until_, until);
}

std::uint64_t sim_gateway::highest_epoch() const {
    std::uint64_t highest = 0;
    for (const auto& link : links_)
        highest = std::max(highest, link->epoch_seen());
    return highest;
}

std::uint64_t sim_gateway::hint_for(resource_set set) const {
    // No counter is below its node's base: from the highest of those on, all nodes count in step.
    std::uint64_t highest = highest_epoch() << 32;
    for_each_resource(set, [&](std::uint32_t r) { highest = std::max(highest, highest_[ctx_.set.bucket_of[r]]); });
    return highest + 1;
}

void sim_gateway::remember(resource_set set, std::uint64_t token) {
    for_each_resource(set, [&](std::uint32_t r) {
        std::uint64_t& known = highest_[ctx_.set.bucket_of[r]];
        known = std::max(known, token);
    });
}

// --- calls

std::uint32_t sim_gateway::new_attempt(const call& c, command_kind what) {
    std::uint32_t at = 0;
    if (!free_.empty()) {
        at = free_.back();
        free_.pop_back();
        attempts_[at] = attempt(c, what, ctx_.set.nodes);
    } else {
        at = static_cast<std::uint32_t>(attempts_.size());
        attempts_.emplace_back(c, what, ctx_.set.nodes);
    }
    attempt& a = attempts_[at];
    a.before = check_.complete_by_now();
    a.started = local_time();
    request& q = a.built;
    q.resources = c.resources;
    q.attempt = at;
    q.ttl = c.ttl;
    q.renewals_max = ctx_.set.renewals_max;
    q.hold_max = ctx_.set.hold_max;
    q.nonce = c.nonce;
    q.hold = c.hold;
    q.token = c.token;
    q.by = c.by;
    q.mark = mark();
    return at;
}

void sim_gateway::called(const call& c) {
    if (c.kind == call_kind::acquire) return take(c);
    if (c.kind == call_kind::release) return release(c);
    if (c.kind == call_kind::inspect) {
        for_each_resource(c.resources, [&](std::uint32_t r) {
            if (check_.complete_by_now()[r] > c.token) ctx_.hit(probe::inspected_after_newer_grant);
        });
    }
    start_round(c, command_of(c.kind));
}

void sim_gateway::start_attempt(const call& c, ticket for_whom, lease_of_before previous, const call* gives_back) {
    const std::uint32_t at = new_attempt(c, command_kind::acquire);
    attempt& a = attempts_[at];
    a.for_whom = for_whom;
    if (gives_back) a.gives_back = *gives_back;
    request& q = a.built;
    q.nonce = q.hold = ctx_.chance.next() | 1;
    q.previous = previous.nonce;
    q.previous_hold = previous.hold;
    q.key = c.key;
    if (c.wait == milliseconds{0}) q.mark = 0;
    // Whoever waits behind it here has to be told when the lease ends at another gateway.
    const auto& behind = queues_[static_cast<std::uint32_t>(std::countr_zero(c.resources))];
    if (behind && behind->size() > 1) q.left_mark = mark();
    q.hint = ctx_.set.hints ? hint_for(c.resources) : 0;
    if (q.hint > (highest_epoch() << 32) + 1) ctx_.hit(probe::hint_used);
    ctx_.note("attempt begins", index_, q.nonce, c.resources, q.hint);
    perform(at, a.taking.start());
    settle(at);
}

void sim_gateway::start_round(const call& c, command_kind what) {
    begin_round(new_attempt(c, what));
}

void sim_gateway::begin_round(std::uint32_t at) {
    attempt& a = attempts_[at];
    ctx_.note("round begins", index_, a.built.nonce, static_cast<std::uint64_t>(a.what), a.built.token);
    for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
        const reply_status sent = send(at, n, a.what, a.built.token);
        if (sent != reply_status::ok) round_answered(at, n, only(sent));
    }
    settle(at);
}

reply_status sim_gateway::send(std::uint32_t at, std::uint32_t node, command_kind command, std::uint64_t token) {
    attempt& a = attempts_[at];
    request q = a.built;
    q.command = command;
    q.token = token;
    const reply_status sent = links_[node]->send(q);
    if (sent == reply_status::ok) ++a.awaited;
    return sent;
}

void sim_gateway::on_reply(const request& asked, std::uint32_t node, const node_reply& told, bool last) {
    const std::uint32_t at = asked.attempt;
    attempt& a = attempts_[at];
    const node_reply& r = told;
    if (last) --a.awaited;
    if (r.status == reply_status::broken) a.clean = false;
    if (r.status == reply_status::timeout) a.timed_out = true;
    switch (asked.command) {
        case command_kind::acquire:
        case command_kind::confirm:
            acquire_answered(at, node, asked.command, asked.token, r);
            remember(a.built.resources, value_of(a.taking.highest_heard()));  // of those that come late too
            break;
        default:
            // The answer to a top-up or an undo changes nothing.
            if (asked.command == a.what) round_answered(at, node, r);
            if (a.undone && last && r.status == reply_status::not_admitted) a.clean = false;
            break;
    }
    settle(at);
}

/// Frees what nobody waits for any more, and looks whether a failed attempt left anything behind.
void sim_gateway::settle(std::uint32_t at) {
    if (at >= attempts_.size()) return;
    attempt& a = attempts_[at];
    if (a.awaited > 0 || !a.told || !a.in_use) return;
    if (a.undone && a.clean && !check_.was_entered(a.built.nonce)) {
        ctx_.hit(probe::undone_cleanly);
        for (std::uint32_t n = 0; n < ctx_.set.nodes; ++n) {
            if (a.undone_in[n] != 0 && a.undone_in[n] != nodes_[n].run()) continue;  // another life of the node
            if (nodes_[n].replaced_since(a.undone_at)) continue;                     // or older data
            for_each_resource(a.built.resources, [&](std::uint32_t r) {
                if (nodes_[n].holder_of(r) == a.built.nonce)
                    check_.key_left(n, r, a.built.nonce, "the attempt failed and was undone on every node");
            });
        }
    }
    a.in_use = false;
    free_.push_back(at);
}

void sim_gateway::tell(const call& c, const call_answer& answer) {
    ctx_.note("client is told", c.client, static_cast<std::uint64_t>(answer.what), answer.token,
              static_cast<std::uint64_t>(answer.left.count()));
    if (clients_.waits_for(c)) clients_.answer(c, answer);
}

}  // namespace sim
