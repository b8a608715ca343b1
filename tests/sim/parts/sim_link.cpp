#include <sim/parts/sim_link.hpp>

#include <sim/parts/sim_gateway.hpp>

namespace sim {
namespace {

using lockcore::node_reply;
using lockcore::node_supervisor;
using lockcore::reply_status;
using action = node_supervisor::action;

/// As in node_link: a node without a request for this long is pinged.
constexpr milliseconds silence_max{500};
/// As in admission: a voting node is inspected again after this time.
constexpr milliseconds review_every{5'000};

lockcore::command_marks marks_of(const node_marks& m) {
    lockcore::command_marks out;
    out.lost = std::to_string(m.lost) + " 0";
    out.text = out.lost + ' ' + std::to_string(m.set);
    return out;
}

}  // namespace

sim_link::sim_link(context& ctx, network& net, epoch_register& epochs, sim_gateway& owner, std::uint32_t gateway,
                   std::uint32_t node)
    : ctx_(ctx),
      net_(net),
      epochs_(epochs),
      owner_(owner),
      gateway_(gateway),
      node_(node),
      supervisor_(quarantine_time()) {}

milliseconds sim_link::quarantine_time() const {
    const bool not_at_all = ctx_.is_active(mutation::no_quarantine) || !ctx_.config.quarantined;
    return not_at_all ? milliseconds{0} : ctx_.config.max_ttl;
}

lockcore::monotonic_time sim_link::local_time() const {
    return lockcore::monotonic_time{owner_.clock().of(ctx_.now()) + std::chrono::hours{1}};
}

void sim_link::open() {
    perform({action::connect, milliseconds{0}});
}

void sim_link::reset() {
    in_flight_.clear();
    to_replay_.clear();
    connection_ = network::none;
    established_ = false;
    ++generation_;
    ++serial_;
    run_ = 0;
    spare_epoch_.reset();
    handshake_until_ = next_check_at_ = sim_time::max();
    supervisor_ = node_supervisor(quarantine_time());
}

// --- admission

void sim_link::perform(step next) {
    ++serial_;  // cancels an earlier action
    if (next.next == action::vote) return;
    scheduled_generation_ = generation_;
    ctx_.events.schedule_in(next.delay, {.kind = event_kind::link_action,
                                         .actor = static_cast<std::uint8_t>(gateway_),
                                         .a = node_,
                                         .b = serial_,
                                         .c = static_cast<std::uint32_t>(next.next)});
}

void sim_link::run_action(std::uint32_t serial, action next) {
    if (serial != serial_ || (scheduled_generation_ != generation_ && next != action::connect)) return;
    switch (next) {
        case action::connect:
            return connect();
        case action::identify:
            return identify();
        case action::find_record:
            return ask_register(epoch_register::query_kind::find);
        case action::draw_epoch:
            return ask_register(epoch_register::query_kind::draw);
        case action::note_unsynced:
            return ask_register(epoch_register::query_kind::note_unsynced);
        case action::delete_admission:
            return delete_admission();
        case action::readmit:
            return readmit();
        case action::vote:
            return;
    }
}

void sim_link::connect() {
    ++generation_;
    established_ = false;
    run_ = 0;
    connection_ = net_.connect(gateway_, node_);
    handshake_until_ = ctx_.now() + ctx_.config.node_dead_after;
    schedule_check(handshake_until_);
}

void sim_link::opened(network::connection c, network::opening result) {
    if (c != connection_) {
        if (result == network::opening::established) net_.close(c);
        return;
    }
    if (result != network::opening::established) {
        connection_ = network::none;
        return on_connection_lost("refused");
    }
    established_ = true;
    // Simulates a client library that reconnects and resends by itself.
    for (const request& q : to_replay_) {
        net_.send(connection_, q);
        in_flight_.push({q, ctx_.now(), false});
    }
    to_replay_.clear();
    perform(supervisor_.connected());
}

void sim_link::identify() {
    reviewed_at_ = ctx_.now();
    handshake_until_ = ctx_.now() + ctx_.config.node_dead_after;
    schedule_check(handshake_until_);
    request q;
    q.kind = request_kind::identify;
    q.claim = owner_.new_claim();
    net_.send(connection_, q);
}

void sim_link::identified(const reply& r) {
    handshake_until_ = sim_time::max();
    lockcore::node_facts facts;
    facts.run_id = std::to_string(r.live_run);
    facts.role = "master";
    facts.maxmemory_policy = "noeviction";
    facts.syncs_every_write = r.syncs_every_write;
    facts.kept_unsynced = r.kept_unsynced || ctx_.is_active(mutation::sync_end_not_recorded);
    node_marks marks = r.marks;
    if (ctx_.is_active(mutation::settings_at_start_ignored) && r.admitted_run != r.live_run) marks.set = 0;
    facts.marks = marks_of(marks);
    facts.admitted_marks = marks_of(r.admitted_marks);
    if (r.admitted_run != 0) facts.admitted_run_id = std::to_string(r.admitted_run);
    facts.claim = std::to_string(r.claim);
    facts.admitted_epoch = lockcore::epoch{r.base >> 32};
    run_ = r.live_run;
    identified_marks_ = r.marks;
    const bool was_quarantined = supervisor_.state() == lockcore::node_state::quarantined;
    const step next = supervisor_.identified(std::move(facts), local_time());
    if (!was_quarantined && supervisor_.state() == lockcore::node_state::quarantined) ctx_.hit(probe::quarantined);
    if (votes()) ctx_.note("node votes", gateway_, node_, run_, epoch_seen());
    perform(next);
}

void sim_link::ask_register(epoch_register::query_kind kind) {
    epoch_register::call c;
    c.kind = kind;
    c.gateway = gateway_;
    c.node = node_;
    c.serial = serial_;
    c.seen = owner_.highest_epoch();
    c.life = supervisor_.life();
    c.synced = supervisor_.facts().syncs_every_write || ctx_.is_active(mutation::draw_records_synced);
    epochs_.ask(std::move(c));
    if (kind == epoch_register::query_kind::draw && ctx_.is_active(mutation::early_draw) && spare_epoch_)
        use_epoch(*spare_epoch_);
}

void sim_link::register_answered(const epoch_register::call& answer) {
    const bool drawn = answer.done && answer.kind == epoch_register::query_kind::draw;
    if (drawn && ctx_.is_active(mutation::early_draw)) {
        // Keeps the epoch for the next admission, so that it is drawn before that run id is read.
        const bool used_already = spare_epoch_.has_value();
        spare_epoch_ = answer.epoch;
        if (used_already) return;
    }
    if (answer.serial != serial_) return;
    if (!answer.done) return perform(supervisor_.register_failed("out of reach"));
    switch (answer.kind) {
        case epoch_register::query_kind::find: {
            lockcore::node_record record;
            record.known = answer.known;
            record.latest_epoch = lockcore::epoch{answer.epoch};
            record.life = answer.life;
            record.synced = answer.synced || ctx_.is_active(mutation::trusts_current_fsync);
            return record_found(record);
        }
        case epoch_register::query_kind::draw:
            return use_epoch(answer.epoch);
        case epoch_register::query_kind::note_unsynced:
            return perform(supervisor_.unsynced_noted());
    }
}

void sim_link::record_found(lockcore::node_record record) {
    if (!record.known) ctx_.hit(probe::first_admission);
    const step next = supervisor_.record_found(record, local_time());
    if (supervisor_.state() == lockcore::node_state::quarantined) {
        ctx_.hit(probe::quarantined);
    } else if (record.known) {
        ctx_.hit(probe::quarantine_skipped);
    }
    perform(next);
}

void sim_link::use_epoch(std::uint64_t epoch) {
    perform(supervisor_.epoch_drawn(lockcore::epoch{epoch}));
}

void sim_link::delete_admission() {
    handshake_until_ = ctx_.now() + ctx_.config.node_dead_after;
    schedule_check(handshake_until_);
    request q;
    q.kind = request_kind::delete_admission;
    net_.send(connection_, q);
}

void sim_link::readmit() {
    handshake_until_ = ctx_.now() + ctx_.config.node_dead_after;
    schedule_check(handshake_until_);
    request q;
    q.kind = request_kind::readmit;
    q.run = run_;
    q.base = value_of(supervisor_.drawn()) << 32;
    q.marks = identified_marks_;
    q.syncs = supervisor_.facts().syncs_every_write;
    q.claim = static_cast<std::uint32_t>(std::stoul(supervisor_.facts().claim));
    net_.send(connection_, q);
}

// --- connection

void sim_link::drop_connection(const char* reason) {
    if (connection_ != network::none) net_.close(connection_);
    ctx_.hit(probe::connection_dropped);
    on_connection_lost(reason);
}

void sim_link::on_connection_lost(const char* reason) {
    connection_ = network::none;
    established_ = false;
    fifo<sent> unanswered = std::exchange(in_flight_, {});
    for (sent& s : unanswered) {
        if (ctx_.is_active(mutation::replay_on_reconnect)) {
            to_replay_.push_back(s.asked);
        } else {
            owner_.on_reply(s.asked, node_, status_reply(reply_status::broken), true);
        }
    }
    handshake_until_ = sim_time::max();
    ++generation_;
    ctx_.note("link lost", gateway_, node_, unanswered.size());
    perform(supervisor_.disconnected(reason));
}

void sim_link::ended(network::connection c) {
    if (c == connection_) on_connection_lost("the connection was closed");
}

void sim_link::schedule_check(sim_time when) {
    if (when >= next_check_at_) return;
    next_check_at_ = when;
    ctx_.events.schedule_at(when,
                            {.kind = event_kind::link_check, .actor = static_cast<std::uint8_t>(gateway_), .a = node_});
}

void sim_link::check_timers() {
    const sim_time now = ctx_.now();
    if (now < next_check_at_) return;  // an earlier check has run already
    next_check_at_ = sim_time::max();
    if (connection_ == network::none) return;
    if (now >= handshake_until_) return drop_connection("does not answer");
    if (!in_flight_.empty() && now - in_flight_.front().at >= ctx_.config.node_dead_after)
        return drop_connection("does not answer");
    if (votes() && handshake_until_ == sim_time::max() && now - reviewed_at_ >= review_every) {
        ctx_.hit(probe::node_reviewed);
        identify();
    } else if (votes() && in_flight_.empty() && handshake_until_ == sim_time::max() &&
               now - last_reply_at_ >= silence_max) {
        handshake_until_ = now + ctx_.config.node_dead_after;
        request q;
        q.kind = request_kind::ping;
        net_.send(connection_, q);
    }
    sim_time next = handshake_until_;
    if (votes()) next = std::min(next, std::max(last_reply_at_ + silence_max, now + silence_max));
    // on_reply may send further requests, which are added at the end; it is called once per overdue request.
    const std::size_t known = in_flight_.size();
    for (std::size_t i = 0; i < known && i < in_flight_.size(); ++i) {
        sent& s = *(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
        if (s.overdue) continue;
        if (now - s.at < ctx_.config.node_timeout) break;
        s.overdue = true;
        ctx_.hit(probe::node_timed_out);
        const request asked = s.asked;
        owner_.on_reply(asked, node_, status_reply(reply_status::timeout), false);
    }
    for (const sent& s : in_flight_) {
        if (s.overdue) continue;
        next = std::min(next, s.at + ctx_.config.node_timeout);
        break;
    }
    if (!in_flight_.empty()) next = std::min(next, in_flight_.front().at + ctx_.config.node_dead_after);
    if (next != sim_time::max()) schedule_check(next);
}

// --- requests

reply_status sim_link::send(request q) {
    if (connection_ == network::none || !established_) return reply_status::unreachable;
    if (!votes()) return reply_status::not_admitted;
    const bool is_release = q.command == lockcore::command_kind::release || q.command == lockcore::command_kind::undo;
    if (!is_release && !in_flight_.empty() && in_flight_.front().overdue) return reply_status::timeout;
    q.run = run_;
    net_.send(connection_, q);
    in_flight_.push({q, ctx_.now(), false});
    schedule_check(ctx_.now() + ctx_.config.node_timeout);
    return reply_status::ok;
}

void sim_link::arrived(network::connection c, const reply& r) {
    if (c != connection_) return;
    last_reply_at_ = ctx_.now();
    switch (r.kind) {
        case request_kind::lease:
            return answered(r);
        case request_kind::identify:
            identified(r);
            break;
        case request_kind::readmit:
            handshake_until_ = sim_time::max();
            perform(supervisor_.readmit_answered(r.readmitted != reply::readmission::gone));
            break;
        case request_kind::delete_admission:
            handshake_until_ = sim_time::max();
            perform(supervisor_.admission_deleted({}));
            break;
        case request_kind::ping:
            handshake_until_ = sim_time::max();
            break;
    }
    if (votes()) schedule_check(ctx_.now() + silence_max);
}

void sim_link::answered(const reply& r) {
    const sent s = in_flight_.pop();
    if (r.lease.status == reply_status::not_admitted && votes()) perform(supervisor_.found_not_admitted());
    owner_.on_reply(s.asked, node_, r.lease, true);
}

}  // namespace sim
