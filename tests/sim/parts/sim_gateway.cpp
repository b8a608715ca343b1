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

sim_gateway::sim_gateway(context& ctx, network& net, epoch_register& epochs, checkers& check, client_interface& clients,
                         std::vector<sim_node>& nodes, std::uint32_t index, drifting_clock clock)
    : ctx_(ctx), net_(net), check_(check), clients_(clients), nodes_(nodes), index_(index), clock_(clock) {
    for (std::uint32_t n = 0; n < ctx.config.nodes; ++n)
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
        link->reset();
    attempts_.clear();
    free_.clear();
    if (!waiters_.empty()) ctx_.hit(probe::gateway_crashed_with_waiters);
    waiters_.clear();
    queues_.fill(std::nullopt);
    highest_ = {};
}

void sim_gateway::pause_until(sim_time until) {
    if (attempts_.size() > free_.size() && until - ctx_.now() > ctx_.config.ttl_low)
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
    // No counter is below the base of its node, so from the highest base on all nodes give equal counters.
    std::uint64_t highest = highest_epoch() << 32;
    for_each_resource(set, [&](std::uint32_t r) { highest = std::max(highest, highest_[ctx_.config.bucket_of[r]]); });
    return highest + 1;
}

void sim_gateway::record_token(resource_set set, std::uint64_t token) {
    for_each_resource(set, [&](std::uint32_t r) {
        std::uint64_t& known = highest_[ctx_.config.bucket_of[r]];
        known = std::max(known, token);
    });
}

// --- calls

std::uint32_t sim_gateway::new_attempt(const call& c, command_kind command) {
    std::uint32_t at = 0;
    if (!free_.empty()) {
        at = free_.back();
        free_.pop_back();
        attempts_[at] = attempt(c, command, ctx_.config.nodes);
    } else {
        at = static_cast<std::uint32_t>(attempts_.size());
        attempts_.emplace_back(c, command, ctx_.config.nodes);
    }
    attempt& a = attempts_[at];
    a.before = check_.highest_complete();
    a.started = local_time();
    request& q = a.base_request;
    q.resources = c.resources;
    q.attempt = at;
    q.ttl = c.ttl;
    q.renewals_max = ctx_.config.renewals_max;
    q.hold_max = ctx_.config.hold_max;
    q.nonce = c.nonce;
    q.hold = c.hold;
    q.token = c.token;
    q.holder = c.holder;
    q.mark = mark();
    return at;
}

void sim_gateway::on_call(const call& c) {
    if (c.kind == call_kind::acquire) return handle_acquire(c);
    if (c.kind == call_kind::release) return handle_release(c);
    if (c.kind == call_kind::inspect) {
        for_each_resource(c.resources, [&](std::uint32_t r) {
            if (check_.highest_complete()[r] > c.token) ctx_.hit(probe::inspected_after_newer_grant);
        });
    }
    start_round(c, command_of(c.kind));
}

void sim_gateway::start_attempt(const call& c, ticket waiter_ticket, previous_lease previous,
                                const call* pending_release) {
    const std::uint32_t at = new_attempt(c, command_kind::acquire);
    attempt& a = attempts_[at];
    a.waiter_ticket = waiter_ticket;
    if (pending_release) a.pending_release = *pending_release;
    request& q = a.base_request;
    q.nonce = q.hold = ctx_.rng.next() | 1;
    q.previous = previous.nonce;
    q.previous_hold = previous.hold;
    q.key = c.key;
    if (c.wait == milliseconds{0}) q.mark = 0;
    // If others wait for this resource here, the new lease carries this gateway's mark from the start, so that a
    // release at another gateway notifies them.
    const auto& behind = queues_[static_cast<std::uint32_t>(std::countr_zero(c.resources))];
    if (behind && behind->size() > 1) q.initial_mark = mark();
    q.hint = ctx_.config.hints ? hint_for(c.resources) : 0;
    if (q.hint > (highest_epoch() << 32) + 1) ctx_.hit(probe::hint_used);
    ctx_.note("attempt begins", index_, q.nonce, c.resources, q.hint);
    perform(at, a.acquisition.start());
    free_if_finished(at);
}

void sim_gateway::start_round(const call& c, command_kind command) {
    begin_round(new_attempt(c, command));
}

void sim_gateway::begin_round(std::uint32_t at) {
    attempt& a = attempts_[at];
    ctx_.note("round begins", index_, a.base_request.nonce, static_cast<std::uint64_t>(a.command),
              a.base_request.token);
    for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
        const reply_status sent = send(at, n, a.command, a.base_request.token);
        if (sent != reply_status::ok) round_answered(at, n, status_reply(sent));
    }
    free_if_finished(at);
}

reply_status sim_gateway::send(std::uint32_t at, std::uint32_t node, command_kind command, std::uint64_t token) {
    attempt& a = attempts_[at];
    request q = a.base_request;
    q.command = command;
    q.token = token;
    const reply_status sent = links_[node]->send(q);
    if (sent == reply_status::ok) ++a.awaited;
    return sent;
}

void sim_gateway::on_reply(const request& asked, std::uint32_t node, const node_reply& r, bool last) {
    const std::uint32_t at = asked.attempt;
    attempt& a = attempts_[at];
    if (last) --a.awaited;
    if (r.status == reply_status::broken) a.clean = false;
    if (r.status == reply_status::timeout) a.timed_out = true;
    switch (asked.command) {
        case command_kind::acquire:
        case command_kind::confirm:
            acquire_answered(at, node, asked.command, asked.token, r);
            record_token(a.base_request.resources,
                         value_of(a.acquisition.highest_observed_token()));  // late replies count too
            break;
        default:
            // The answer to a top-up or an undo changes nothing.
            if (asked.command == a.command) round_answered(at, node, r);
            if (a.undone && last && r.status == reply_status::not_admitted) a.clean = false;
            break;
    }
    free_if_finished(at);
}

/// Frees an attempt that expects no more answers, and checks that a failed one left no key (C6).
void sim_gateway::free_if_finished(std::uint32_t at) {
    if (at >= attempts_.size()) return;
    attempt& a = attempts_[at];
    if (a.awaited > 0 || !a.decided || !a.in_use) return;
    if (a.undone && a.clean && !check_.has_hold_request(a.base_request.nonce)) {
        ctx_.hit(probe::undone_cleanly);
        for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
            if (a.undone_in[n] != 0 && a.undone_in[n] != nodes_[n].run()) continue;  // the node restarted
            if (nodes_[n].replaced_since(a.undone_at)) continue;                     // or went back to older data
            for_each_resource(a.base_request.resources, [&](std::uint32_t r) {
                if (nodes_[n].holder_of(r) == a.base_request.nonce)
                    check_.key_left(n, r, a.base_request.nonce, "the attempt failed and was undone on every node");
            });
        }
    }
    a.in_use = false;
    free_.push_back(at);
}

void sim_gateway::answer_client(const call& c, const call_answer& answer) {
    ctx_.note("client is answered", c.client, static_cast<std::uint64_t>(answer.result), answer.token,
              static_cast<std::uint64_t>(answer.left.count()));
    if (clients_.is_waiting_for(c)) clients_.answer(c, answer);
}

}  // namespace sim
