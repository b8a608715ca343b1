#include <sim/parts/network.hpp>

#include <algorithm>

namespace sim {

network::network(context& ctx, node_list& nodes) : ctx_(ctx), nodes_(nodes) {
    for (std::uint32_t n = 0; n < nodes.size(); ++n) {
        nodes[n]->server().on_publish = [this, n](std::string_view channel, std::string_view text) {
            return publish(n, channel, text);
        };
    }
}

microseconds network::delay(const connection_state& l) {
    microseconds d = ctx_.config.delay_base + ctx_.rng.draw_around(ctx_.config.delay_more);
    if (!healed_ && ctx_.config.slow_per_thousand > 0 && ctx_.rng.chance(ctx_.config.slow_per_thousand))
        d += ctx_.rng.draw_around(ctx_.config.slow);
    if (!healed_) d += ctx_.config.extra_delay[l.gateway][l.node];
    return d;
}

sim_time network::arrival(const connection_state& l, direction& way, sim_time blocked_until) {
    const bool is_late_answer = &way == &l.down && !healed_;
    const microseconds extra = is_late_answer ? ctx_.config.answer_delay[l.gateway] : microseconds{0};
    way.latest = std::max(way.latest, std::max(ctx_.now(), blocked_until) + delay(l) + extra);
    return way.latest;
}

network::connection network::connect(std::uint32_t gateway, std::uint32_t node) {
    const auto c = static_cast<connection>(connections_.size());
    connection_state fresh;
    fresh.gateway = gateway;
    fresh.node = node;
    connections_.push_back(std::move(fresh));
    connection_state& l = connections_.back();
    const sim_time there = arrival(l, l.up, up_blocked_[gateway][node]);
    l.down.latest = std::max(there, down_blocked_[gateway][node]);
    const sim_time back = l.down.latest + delay(l);
    ctx_.events.schedule_at(back, {.kind = event_kind::connection_opens, .a = c});
    return c;
}

network::opening network::opens(connection c) {
    connection_state& l = connections_[c];
    if (!l.open) return opening::abandoned;
    const sim_node& node = *nodes_[l.node];
    if (!node.runs()) {
        l.open = false;
        return opening::refused;
    }
    l.run = node.run();
    return opening::established;
}

void network::send(connection c, request q) {
    connection_state& l = connections_[c];
    if (!l.open || !l.accepts) return;
    l.requests.push(std::move(q));
    ctx_.events.schedule_at(arrival(l, l.up, up_blocked_[l.gateway][l.node]),
                            {.kind = event_kind::request_arrives, .a = c});
}

void network::request_arrives(connection c) {
    connection_state& l = connections_[c];
    if (l.requests.empty()) return;  // lost with its connection
    sim_node& node = *nodes_[l.node];
    if (l.replays && is_replayed_later(c)) return;
    if (!l.replays && (!node.runs() || node.run() != l.run || !l.accepts)) {
        l.requests.clear();
        return;
    }
    if (node.paused_until() > ctx_.now()) {
        ctx_.events.schedule_at(node.paused_until(), {.kind = event_kind::request_arrives, .a = c});
        return;
    }
    const request q = l.requests.pop();
    if (!l.open) ctx_.hit(probe::request_outlived_connection);
    if (l.replays) {
        ctx_.hit(probe::request_replayed);
        if (q.script) node.load_script(*q.script);
    }
    reply answer = node.execute(q);
    if (!l.open || !l.answers) return;
    l.replies.push(std::move(answer));
    ctx_.events.schedule_at(arrival(l, l.down, down_blocked_[l.gateway][l.node]),
                            {.kind = event_kind::reply_arrives, .a = c});
}

/// Returns true if a request of a process that has ended is executed later.
/// It is executed at some moment when the data of the node do not say that it is admitted as that process;
/// R9 alone prevents that one is executed when they do (mutations/table.tsv).
bool network::is_replayed_later(connection c) {
    const connection_state& l = connections_[c];
    sim_node& node = *nodes_[l.node];
    if (node.runs() && !node.is_admitted_as(l.run) && ctx_.rng.chance(300)) return false;
    if (!healed_)
        ctx_.events.schedule_in(ctx_.rng.draw_around(microseconds(ctx_.config.max_ttl) / 16),
                                {.kind = event_kind::request_arrives, .a = c});
    return true;
}

/// Delivers the message to the gateway that has this mark now; it is never sent again.
std::int64_t network::publish(std::uint32_t node, std::string_view channel, std::string_view text) {
    constexpr std::string_view prefix = "fg:wake:";
    const std::string_view mark = channel.substr(std::min(prefix.size(), channel.size()));
    const auto found = std::ranges::find(marks_, mark);
    if (found == marks_.end() || mark.empty()) return 0;
    const auto gateway = static_cast<std::uint32_t>(found - marks_.begin());
    if (!healed_ && (ctx_.rng.chance(ctx_.config.release_messages_lost_per_thousand) ||
                     down_blocked_[gateway][node] > ctx_.now())) {
        ctx_.hit(probe::release_message_lost);
        return 1;
    }
    const std::size_t space = std::min(text.find(' '), text.size() - 1);
    const std::string_view ended = text.substr(space + 1);
    const std::size_t end_of_name = ended.find(' ');
    release_messages_.push_back({node,
                                 {std::string(mark), std::string(text.substr(0, space)),
                                  std::string(ended.substr(0, end_of_name)), end_of_name != std::string_view::npos}});
    connection_state way;
    way.gateway = gateway;
    way.node = node;
    ctx_.events.schedule_in(delay(way), {.kind = event_kind::release_message_arrives,
                                         .actor = static_cast<std::uint8_t>(gateway),
                                         .a = static_cast<std::uint32_t>(release_messages_.size() - 1)});
    return 1;
}

std::optional<reply> network::reply_arrives(connection c) {
    connection_state& l = connections_[c];
    if (l.replies.empty()) return std::nullopt;
    if (!l.open || !l.answers) {
        l.replies.clear();
        return std::nullopt;
    }
    return l.replies.pop();
}

void network::close(connection c) {
    connection_state& l = connections_[c];
    l.open = false;
    l.replies.clear();
    // The node may still read the requests from its socket.
    if (ctx_.rng.chance(300)) {
        l.accepts = false;
        l.requests.clear();
    }
}

void network::schedule_end(connection c, microseconds after) {
    connection_state& l = connections_[c];
    if (!l.open || l.ending) return;
    l.ending = true;
    ctx_.events.schedule_in(after, {.kind = event_kind::connection_ends, .a = c});
}

bool network::ends(connection c) {
    connection_state& l = connections_[c];
    if (!l.open) return false;
    l.open = false;
    l.replies.clear();
    return true;
}

void network::cut_random_connection() {
    // Nearly all open connections are among the 24 newest.
    for (int tries = 0; tries < 8 && !connections_.empty(); ++tries) {
        const auto recent = static_cast<std::uint32_t>(std::min<std::size_t>(connections_.size(), 24));
        const auto c = static_cast<connection>(connections_.size() - 1 - ctx_.rng.below(recent));
        connection_state& l = connections_[c];
        if (!l.open || l.run == 0 || l.ending) continue;
        // Requests and replies in flight may be lost or may still arrive.
        if (ctx_.rng.chance(400)) {
            l.accepts = false;
            l.requests.clear();
        }
        if (ctx_.rng.chance(600)) {
            l.answers = false;
            l.replies.clear();
        }
        ctx_.note("connection is cut", l.gateway, l.node, l.accepts, l.answers);
        schedule_end(c, delay(l));
        return;
    }
}

void network::block_random_path(sim_time until) {
    const std::uint32_t g = ctx_.rng.below(ctx_.config.gateways), n = ctx_.rng.below(ctx_.config.nodes);
    const std::uint32_t ways = 1 + ctx_.rng.below(3);
    for (std::uint32_t other = 0; other < ctx_.config.nodes; ++other) {
        if (other != n && !(ctx_.config.blocks_several && ctx_.rng.chance(500))) continue;
        if (ways & 1) up_blocked_[g][other] = until;
        if (ways & 2) down_blocked_[g][other] = until;
        ctx_.note("path is blocked", g, other, ways, static_cast<std::uint64_t>(until.count()));
    }
}

void network::node_crashed(std::uint32_t node) {
    // If the whole machine crashes, nothing closes its connections.
    const bool peer_reports_it = ctx_.rng.chance(700);
    for (connection c = 0; c < connections_.size(); ++c) {
        connection_state& l = connections_[c];
        if (l.node != node || l.run == 0) continue;
        if (l.accepts && !l.requests.empty() && ctx_.config.replayed_per_thousand > 0)
            l.replays = ctx_.rng.chance(ctx_.config.replayed_per_thousand);
        if (!l.replays) l.requests.clear();
        l.accepts = false;
        if (peer_reports_it) schedule_end(c, delay(l));
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
