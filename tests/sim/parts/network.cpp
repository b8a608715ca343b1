#include <sim/parts/network.hpp>

namespace sim {

microseconds network::delay(const line& l) {
    microseconds d = ctx_.set.delay_base + ctx_.chance.about(ctx_.set.delay_more);
    if (!healed_ && ctx_.set.slow_per_thousand > 0 && ctx_.chance.chance(ctx_.set.slow_per_thousand))
        d += ctx_.chance.about(ctx_.set.slow);
    if (!healed_) d += ctx_.set.detour[l.gateway][l.node];
    return d;
}

sim_time network::arrival(const line& l, one_way& way, sim_time blocked_until) {
    way.latest = std::max(way.latest, std::max(ctx_.now(), blocked_until) + delay(l));
    return way.latest;
}

network::connection network::connect(std::uint32_t gateway, std::uint32_t node) {
    const auto c = static_cast<connection>(connections_.size());
    line fresh;
    fresh.gateway = gateway;
    fresh.node = node;
    connections_.push_back(std::move(fresh));
    line& l = connections_.back();
    const sim_time there = arrival(l, l.up, up_blocked_[gateway][node]);
    l.down.latest = std::max(there, down_blocked_[gateway][node]);
    const sim_time back = l.down.latest + delay(l);
    ctx_.events.at(back, {.kind = event_kind::connection_opens, .a = c});
    return c;
}

network::opening network::opens(connection c) {
    line& l = connections_[c];
    if (!l.open) return opening::given_up;
    const sim_node& node = nodes_[l.node];
    if (!node.runs()) {
        l.open = false;
        return opening::refused;
    }
    l.run = node.run();
    return opening::stands;
}

void network::send(connection c, const request& q) {
    line& l = connections_[c];
    if (!l.open || !l.accepts) return;
    l.requests.push(q);
    ctx_.events.at(arrival(l, l.up, up_blocked_[l.gateway][l.node]), {.kind = event_kind::request_arrives, .a = c});
}

void network::request_arrives(connection c) {
    line& l = connections_[c];
    if (l.requests.empty()) return;  // dropped on its way
    sim_node& node = nodes_[l.node];
    if (!node.runs() || node.run() != l.run || !l.accepts) {
        l.requests.clear();
        return;
    }
    if (node.paused_until() > ctx_.now()) {
        ctx_.events.at(node.paused_until(), {.kind = event_kind::request_arrives, .a = c});
        return;
    }
    const request q = l.requests.pop();
    if (!l.open && q.kind == request_kind::lease) ctx_.hit(probe::request_outlived_connection);
    const reply answer = node.execute(q);
    for (const wake& w : node.take_wakes())
        publish(l.node, w);
    if (!l.open || !l.answers) return;
    l.replies.push(answer);
    ctx_.events.at(arrival(l, l.down, down_blocked_[l.gateway][l.node]), {.kind = event_kind::reply_arrives, .a = c});
}

/// What is published goes to those who listen at that moment; nobody asks for it again.
void network::publish(std::uint32_t node, const wake& w) {
    const std::uint32_t gateway = (w.mark - 1) % sim_gateways_max;
    if (!healed_ && (ctx_.chance.chance(ctx_.set.wakes_lost_per_thousand) || down_blocked_[gateway][node] > ctx_.now()))
        return ctx_.hit(probe::wake_lost);
    wakes_.push_back({node, w});
    line way;
    way.gateway = gateway;
    way.node = node;
    ctx_.events.in(delay(way), {.kind = event_kind::wake_arrives,
                                .who = static_cast<std::uint8_t>(gateway),
                                .a = static_cast<std::uint32_t>(wakes_.size() - 1)});
}

network::delivery network::reply_arrives(connection c) {
    line& l = connections_[c];
    delivery out{l.gateway, l.node, false, {}};
    if (l.replies.empty()) return out;
    if (!l.open || !l.answers) {
        l.replies.clear();
        return out;
    }
    out.arrived = true;
    out.reply = l.replies.pop();
    return out;
}

void network::close(connection c) {
    line& l = connections_[c];
    l.open = false;
    l.replies.clear();
    // The node may have read them from its socket by now, or may yet.
    if (ctx_.chance.chance(300)) {
        l.accepts = false;
        l.requests.clear();
    }
}

void network::end_soon(connection c, microseconds after) {
    line& l = connections_[c];
    if (!l.open || l.ending) return;
    l.ending = true;
    ctx_.events.in(after, {.kind = event_kind::connection_ends, .a = c});
}

bool network::ends(connection c) {
    line& l = connections_[c];
    if (!l.open) return false;
    l.open = false;
    l.replies.clear();
    return true;
}

void network::cut_any() {
    // The younger half of them holds all that are open, nearly always.
    for (int tries = 0; tries < 8 && !connections_.empty(); ++tries) {
        const auto recent = static_cast<std::uint32_t>(std::min<std::size_t>(connections_.size(), 24));
        const auto c = static_cast<connection>(connections_.size() - 1 - ctx_.chance.below(recent));
        line& l = connections_[c];
        if (!l.open || l.run == 0 || l.ending) continue;
        // What is under way may be lost, or arrive after all; the answers too.
        if (ctx_.chance.chance(400)) {
            l.accepts = false;
            l.requests.clear();
        }
        if (ctx_.chance.chance(600)) {
            l.answers = false;
            l.replies.clear();
        }
        ctx_.note("connection is cut", l.gateway, l.node, l.accepts, l.answers);
        end_soon(c, delay(l));
        return;
    }
}

void network::block_any(sim_time until) {
    const std::uint32_t g = ctx_.chance.below(ctx_.set.gateways), n = ctx_.chance.below(ctx_.set.nodes);
    const std::uint32_t ways = 1 + ctx_.chance.below(3);
    if (ways & 1) up_blocked_[g][n] = until;
    if (ways & 2) down_blocked_[g][n] = until;
    ctx_.note("path is blocked", g, n, ways, static_cast<std::uint64_t>(until.count()));
}

void network::node_crashed(std::uint32_t node) {
    // Sometimes the whole machine is gone and nobody says so.
    const bool says_so = ctx_.chance.chance(700);
    for (connection c = 0; c < connections_.size(); ++c) {
        line& l = connections_[c];
        if (l.node != node || l.run == 0) continue;
        l.requests.clear();
        l.accepts = false;
        if (says_so) end_soon(c, delay(l));
    }
}

void network::gateway_crashed(std::uint32_t gateway) {
    for (connection c = 0; c < connections_.size(); ++c) {
        if (connections_[c].gateway == gateway && connections_[c].open) close(c);
    }
}

void network::heal() {
    healed_ = true;
    for (auto& row : up_blocked_)
        row.fill(sim_time{0});
    for (auto& row : down_blocked_)
        row.fill(sim_time{0});
}

}  // namespace sim
