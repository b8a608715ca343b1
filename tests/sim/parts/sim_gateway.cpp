#include <sim/parts/sim_gateway.hpp>

#include <redis/node_requests.hpp>
#include <redis/script_set.hpp>

#include <utility>

namespace sim {
namespace {

using lockcore::command_kind;
using lockcore::node_index;
namespace action = lockcore::action;
namespace input = lockcore::input;

lockcore::config make_settings(const options& o) {
    lockcore::config out;
    for (std::uint32_t n = 0; n < o.nodes; ++n) {
        lockcore::node_address node;
        node.name = "n" + std::to_string(n);
        out.nodes.push_back(std::move(node));
    }
    out.node_timeout = o.node_timeout;
    out.node_dead_after = o.node_dead_after;
    out.default_ttl = o.max_ttl;
    // The quarantine lasts for max_ttl; callers of the core check the ttl of a request themselves.
    out.max_ttl = o.quarantined ? o.max_ttl : milliseconds{1};
    out.answer_bound = o.answer_bound;
    out.max_wait = std::chrono::minutes{2};
    out.max_renewals = o.renewals_max;
    out.max_hold = o.hold_max;
    out.handoff_max = o.handoff_max;
    return out;
}

/// The commands of an identification are the same each time, and long.
std::shared_ptr<const std::vector<std::string>> format(const lockcore::node_request::any& asked) {
    const auto commands = [&asked] {
        return std::make_shared<const std::vector<std::string>>(lockcore::redis::format_request(asked));
    };
    if (!std::holds_alternative<lockcore::node_request::identify>(asked)) return commands();
    static const auto identification = commands();
    return identification;
}

}  // namespace

std::array<std::byte, lockcore::authenticator::size> sim_gateway::checksum::sign(std::string_view message) const {
    std::array<std::byte, size> out{};
    std::uint64_t hash = 14695981039346656037ULL;
    for (const char c : message)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    for (std::size_t i = 0; i < sizeof hash; ++i)
        out[i] = static_cast<std::byte>(hash >> (8 * i));
    return out;
}

sim_gateway::sim_gateway(context& ctx, network& net, database& db, epoch_register& epochs, gateway_sessions& sessions,
                         checkers& check, client_interface& clients, std::uint32_t index, drifting_clock clock)
    : ctx_(ctx),
      net_(net),
      db_(db),
      epochs_(epochs),
      sessions_(sessions),
      check_(check),
      clients_(clients),
      index_(index),
      clock_(clock),
      settings_(make_settings(ctx.config)),
      random_(ctx.rng) {}

void sim_gateway::start() {
    ++incarnation_;
    paused_until_ = sim_time{0};
    core_ = std::make_unique<lockcore::core>(lockcore::core::services{settings_, mac_, random_});
    net_.subscribe(index_, core_->wake_mark());
    schedule(event_kind::gateway_tick, lockcore::core::tick_length(settings_));
    step(input::start{});
    if (ctx_.config.database_fails()) watch_storage();
}

void sim_gateway::watch_storage() {
    storage_ = std::make_unique<sim_storage_watch>(
        ctx_, db_, epochs_, sessions_,
        sim_storage_watch::owner{index_, incarnation_, [this]() -> const lockcore::core& { return *core_; },
                                 [this](lockcore::core_input what) { step(std::move(what)); },
                                 [this](microseconds span) { return clock_.real(span); }});
    storage_->start();
}

void sim_gateway::crash() {
    if (!calls_.empty()) ctx_.hit(probe::gateway_crashed_with_calls);
    if (core_->waiters() > 0) ctx_.hit(probe::gateway_crashed_with_waiters);
    core_.reset();
    storage_.reset();
    sessions_.gateway_crashed();
    net_.subscribe(index_, {});
    net_.gateway_crashed(index_);
    links_ = {};
    calls_.clear();
    watched_.clear();
    flush_scheduled_ = false;
    timer_at_.reset();
}

void sim_gateway::pause_until(sim_time until) {
    if (!calls_.empty() && until - ctx_.now() > ctx_.config.ttl_low) ctx_.hit(probe::gateway_paused_past_ttl);
    paused_until_ = std::max(paused_until_, until);
    resumed_at_ = std::max(resumed_at_, paused_until_);
}

// --- steps

void sim_gateway::schedule(event_kind kind, microseconds local_delay, std::uint32_t serial) {
    ctx_.events.schedule_in(clock_.real(local_delay),
                            {.kind = kind, .actor = static_cast<std::uint8_t>(index_), .a = incarnation_, .b = serial});
}

void sim_gateway::step(lockcore::core_input what) {
    const microseconds now = local_time();
    const lockcore::step_time time{lockcore::monotonic_time{now}, lockcore::validity_time{now},
                                   lockcore::wall_time{now + std::chrono::hours{480'000}}};
    for (lockcore::core_action& a : core_->step(std::move(what), time))
        std::visit([this](auto& act) { perform(act); }, a);
    if (core_->needs_flush() && !std::exchange(flush_scheduled_, true)) {
        // Sometimes the process has more to do first, and commands of several steps are sent together.
        const bool busy = ctx_.rng.chance(150);
        schedule(event_kind::gateway_flush, busy ? ctx_.rng.draw_around(microseconds{200}) : microseconds{0});
    }
    const auto next = core_->next_timer();
    if (next && next != timer_at_) {
        timer_at_ = next;
        const auto left = std::chrono::ceil<microseconds>(*next - time.monotonic);
        schedule(event_kind::gateway_timer, std::max(left, microseconds{0}), ++timer_serial_);
    }
}

void sim_gateway::on_tick(std::uint32_t incarnation) {
    if (incarnation != incarnation_) return;
    schedule(event_kind::gateway_tick, lockcore::core::tick_length(settings_));
    check_attempts();
    step(input::tick{});
}

void sim_gateway::on_timer(std::uint32_t incarnation, std::uint32_t serial) {
    if (incarnation != incarnation_ || serial != timer_serial_) return;
    timer_at_.reset();
    step(input::timer{});
}

void sim_gateway::on_flush(std::uint32_t incarnation) {
    if (incarnation != incarnation_) return;
    flush_scheduled_ = false;
    step(input::flush{});
}

void sim_gateway::on_storage_asked(std::uint32_t incarnation, std::uint32_t serial) {
    if (incarnation == incarnation_ && storage_) storage_->asked(serial);
}

void sim_gateway::on_storage_answered(std::uint32_t incarnation, std::uint32_t serial) {
    if (incarnation == incarnation_ && storage_) storage_->answered(serial);
}

// --- calls

void sim_gateway::on_call(const call& c) {
    const lockcore::call_id id{++last_call_};
    lockcore::core_input asked = c.input;
    const bool is_answered = std::visit(
        [id]<class Input>(Input& what) {
            if constexpr (requires { what.call = id; }) what.call = id;
            return !std::is_same_v<Input, input::reopen>;
        },
        asked);
    if (is_answered) calls_.emplace(id, pending_call{c, check_.highest_complete()});
    step(std::move(asked));
}

void sim_gateway::on_client_gone(const call& c) {
    for (const auto& [id, pending] : calls_) {
        if (pending.asked.client != c.client || pending.asked.generation != c.generation) continue;
        return step(input::cancel{id});
    }
}

void sim_gateway::perform(action::answer& a) {
    if (a.call == sim_storage_watch::announcement)
        return storage_->on_announced(std::get<lockcore::result<lockcore::floor_announcement>>(a.result));
    const auto found = calls_.extract(a.call);
    if (!found) return;
    observe_answer(found.mapped(), a.result);
    clients_.answer(found.mapped().asked, std::move(a.result));
}

void sim_gateway::on_release_message(std::uint32_t node, const release_message& m) {
    if (m.mark != core_->wake_mark()) return;  // for an earlier run of this gateway
    ctx_.hit(probe::release_message_received);
    if (const auto ended = lockcore::nonce::parse(m.ended))
        step(input::lease_ended{static_cast<node_index>(node), *ended, m.resource, m.revoked});
}

// --- nodes

void sim_gateway::perform(const action::open_connection& a) {
    const auto node = static_cast<std::uint32_t>(a.node);
    links_[node] = {net_.connect(index_, node), a.connection, {}, ctx_.now()};
}

void sim_gateway::perform(const action::close_connection& a) {
    link& l = links_[value_of(a.node)];
    if (l.connection == network::none) return;
    ctx_.hit(probe::connection_dropped);
    net_.close(l.connection);
    l = {};
    l.changed_at = ctx_.now();
}

void sim_gateway::perform(const action::node_changed& a) {
    links_[value_of(a.node)].changed_at = ctx_.now();
    const auto state = core_->status(a.node).state;
    ctx_.note("node state", index_, value_of(a.node), static_cast<std::uint64_t>(state));
    if (state == lockcore::node_state::quarantined) ctx_.hit(probe::quarantined);
}

void sim_gateway::on_opened(network::connection c, network::opening result) {
    const std::uint32_t node = net_.node_of(c);
    link& l = links_[node];
    if (l.connection != c) {
        if (result == network::opening::established) net_.close(c);
    } else if (result == network::opening::established) {
        step(input::connected{static_cast<node_index>(node), l.number});
    } else {
        l.connection = network::none;
        step(input::disconnected{static_cast<node_index>(node), l.number, "refused"});
    }
}

void sim_gateway::on_ended(network::connection c) {
    const std::uint32_t node = net_.node_of(c);
    link& l = links_[node];
    if (l.connection != c) return;
    l.connection = network::none;
    l.asked.clear();
    l.changed_at = ctx_.now();
    step(input::disconnected{static_cast<node_index>(node), l.number, "the connection was closed"});
}

void sim_gateway::perform(const action::send_batch& a) {
    link& l = links_[value_of(a.node)];
    if (l.connection == network::none) return;
    request q;
    q.commands = std::make_shared<const std::vector<std::string>>(
        1, lockcore::redis::format_batch(a.kind, a.items, a.run_id, a.with_source));
    q.script = a.kind;
    sent_batch batch{a.batch, a.kind, {}};
    observe_batch(a, q, batch);
    net_.send(l.connection, std::move(q));
    l.asked.push(std::move(batch));
}

void sim_gateway::perform(const action::ask_node& a) {
    link& l = links_[value_of(a.node)];
    if (l.connection == network::none) return;
    request q;
    q.commands = format(a.request);
    if (std::holds_alternative<lockcore::node_request::mark>(a.request)) ctx_.hit(probe::fast_readmission_begun);
    if (std::holds_alternative<lockcore::node_request::install>(a.request)) ctx_.hit(probe::leases_installed);
    net_.send(l.connection, std::move(q));
    l.asked.push(a.request);
}

void sim_gateway::on_reply(network::connection c, const reply& r) {
    const std::uint32_t node = net_.node_of(c);
    link& l = links_[node];
    if (l.connection != c) return;
    const auto asked = l.asked.pop();
    if (const auto* batch = std::get_if<sent_batch>(&asked)) {
        lockcore::redis::batch_reply parsed = lockcore::redis::parse_batch(batch->kind, r.answers.at(0));
        if (!parsed.error.empty())
            ctx_.hit(parsed.error.starts_with("NOSCRIPT") ? probe::script_missing : probe::not_admitted_found);
        observe_replies(node, *batch, parsed.replies);
        return step(input::batch_answered{static_cast<node_index>(node), l.number, batch->number,
                                          std::move(parsed.replies), std::move(parsed.error)});
    }
    const auto& request = std::get<lockcore::node_request::any>(asked);
    auto response = lockcore::redis::parse_response(request, r.answers);
    if (std::holds_alternative<lockcore::node_request::readmit>(request)) {
        const std::string& word = std::get<lockcore::node_response::text>(response).value;
        ctx_.hit(word == "OK" ? probe::readmit_ok : word == "GONE" ? probe::readmit_gone : probe::readmit_already);
    }
    step(input::node_answered{static_cast<node_index>(node), l.number, std::move(response)});
}

void sim_gateway::perform(action::ask_register& a) {
    epochs_.ask({index_, incarnation_, a.request, std::move(a.asked), {}});
}

void sim_gateway::on_register_answer(const epoch_register::call& answer) {
    if (answer.incarnation == incarnation_) step(input::register_answered{answer.number, answer.response});
}

// --- what the checkers need to know

void sim_gateway::observe_batch(const action::send_batch& a, request& q, sent_batch& batch) {
    const std::size_t node = value_of(a.node);
    for (const lockcore::batch_item& item : a.items) {
        const lockcore::lease_call& sent = item.target->call();
        const sim_nonce nonce = to_number(sent.attempt_id);
        ctx_.probes.sent(a.kind);
        if (a.kind == command_kind::hold) check_.hold_requested(nonce);
        if (a.kind == command_kind::undo) {
            if (const auto found = watched_.find(nonce); found != watched_.end()) {
                found->second.undone[node] = true;
                if (found->second.begun_at > links_[node].changed_at) q.undone.push_back(nonce);
            }
        }
        if (a.kind == command_kind::acquire || a.kind == command_kind::confirm) batch.attempts.push_back(nonce);
        if (a.kind != command_kind::acquire) continue;
        check_.attempt_begun(set_of(sent), nonce);
        // With an idempotency key the lease may be kept for a repeated request.
        const bool has_key = sent.tail.find(" -\n") == std::string::npos;
        const milliseconds decided_in = (settings_.node_timeout + 3 * lockcore::core::tick_length(settings_)) * 4;
        if (!has_key && sent.ttl > decided_in * 2)
            watched_.try_emplace(nonce, watched_attempt{ctx_.now(), ctx_.now() + sent.ttl * 9 / 10, false, {}, {}});
    }
}

void sim_gateway::observe_replies(std::uint32_t node, const sent_batch& batch,
                                  const std::vector<lockcore::node_reply>& replies) {
    for (std::size_t i = 0; i < replies.size(); ++i) {
        const lockcore::reply_status status = replies[i].status;
        ctx_.probes.answered(batch.kind, status);
        if (i >= batch.attempts.size()) continue;
        const auto found = watched_.find(batch.attempts[i]);
        if (found == watched_.end()) continue;
        if (status == lockcore::reply_status::ok) found->second.acquired[node] = true;
        // A node that answers LOST to CONFIRM is not undone (docs/protocol.md R7).
        if (status == lockcore::reply_status::lost) found->second.acquired[node] = false;
    }
}

void sim_gateway::observe_answer(const pending_call& c, const lockcore::call_result& result) {
    const auto* answered = std::get_if<lockcore::result<lockcore::lease>>(&result);
    const lockcore::lease* granted = answered && *answered ? &**answered : nullptr;
    if (const auto* kept = std::get_if<lockcore::result<lockcore::keep_step>>(&result)) {
        if (*kept && (*kept)->result == lockcore::keep_step::outcome::renewed) granted = &(*kept)->kept.current;
    }
    if (!granted) return;
    const sim_nonce nonce = to_number(granted->claims.attempt_id);
    const std::uint64_t token = value_of(granted->claims.token);
    const resource_set set = set_of(granted->claims);
    const bool acquires = std::holds_alternative<input::acquire>(c.asked.input);
    // The clocks of gateway and nodes differ by less than the tenth that is left out.
    check_.hold_answered(nonce, granted->claims.hold, ctx_.now() + granted->validity * 9 / 10);
    if (acquires && !granted->repeated && !granted->reentrant) {
        if (const auto found = watched_.find(nonce); found != watched_.end()) found->second.granted = true;
        return check_.granted(set, nonce, token);
    }
    // A repeated request has the token of a hold that the first attempt may still raise, as after HOLD.
    if (granted->repeated) check_.hold_requested(nonce);
    if (granted->reentrant || granted->repeated)
        check_.further_hold_answered(c.asked.client, nonce, granted->claims.hold);
    check_.lease_reported_alive(set, nonce, token, c.before,
                                granted->reentrant                                    ? "HOLD"
                                : std::holds_alternative<input::renew>(c.asked.input) ? "RENEW"
                                : std::holds_alternative<input::keep>(c.asked.input)  ? "KEEP"
                                                                                      : "INSPECT");
}

void sim_gateway::check_attempts() {
    std::erase_if(watched_, [this](const auto& entry) {
        const auto& [nonce, w] = entry;
        if (ctx_.now() < w.until) return false;
        if (w.granted || w.begun_at <= resumed_at_ || check_.has_hold_request(nonce)) return true;
        for (std::uint32_t n = 0; n < ctx_.config.nodes; ++n) {
            const bool reachable = links_[n].connection != network::none && links_[n].changed_at < w.begun_at;
            if (w.acquired[n] && !w.undone[n] && reachable) check_.attempt_not_undone(n, nonce);
        }
        return true;
    });
}

}  // namespace sim
