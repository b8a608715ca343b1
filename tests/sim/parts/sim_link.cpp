#include <sim/parts/sim_link.hpp>

#include <sim/parts/sim_gateway.hpp>

namespace sim {
namespace {

using lockcore::node_reply;
using lockcore::node_supervisor;
using lockcore::reply_status;
using action = node_supervisor::action;

/// As node_link's: a node that nobody asked anything for so long is asked for a sign of life.
constexpr milliseconds silence_max{500};
/// As admission's: a node that votes is looked at again.
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
    : ctx_(ctx), net_(net), epochs_(epochs), owner_(owner), gateway_(gateway), node_(node), supervisor_(sits_out()) {}

milliseconds sim_link::sits_out() const {
    const bool not_at_all = ctx_.broken(mutation::no_quarantine) || !ctx_.set.quarantined;
    return not_at_all ? milliseconds{0} : ctx_.set.max_ttl;
}

lockcore::monotonic_time sim_link::local_time() const {
    return lockcore::monotonic_time{owner_.clock().of(ctx_.now()) + std::chrono::hours{1}};
}

void sim_link::open() {
    perform({action::connect, milliseconds{0}});
}

void sim_link::forget() {
    in_flight_.clear();
    to_replay_.clear();
    connection_ = network::none;
    stands_ = false;
    ++generation_;
    ++serial_;
    run_ = 0;
    spare_epoch_.reset();
    handshake_until_ = looks_at_ = sim_time::max();
    supervisor_ = node_supervisor(sits_out());
}

// --- being let in

void sim_link::perform(step next) {
    ++serial_;  // whatever was planned before is not done any more
    if (next.next == action::vote) return;
    planned_in_ = generation_;
    ctx_.events.in(next.delay, {.kind = event_kind::link_acts,
                                .who = static_cast<std::uint8_t>(gateway_),
                                .a = node_,
                                .b = serial_,
                                .c = static_cast<std::uint32_t>(next.next)});
}

void sim_link::acts(std::uint32_t serial, action what) {
    if (serial != serial_ || (planned_in_ != generation_ && what != action::connect)) return;
    switch (what) {
        case action::connect:
            return connect();
        case action::identify:
            return identify();
        case action::find_record:
            return ask_register(epoch_register::question::find);
        case action::draw_epoch:
            return ask_register(epoch_register::question::draw);
        case action::note_unsynced:
            return ask_register(epoch_register::question::note_unsynced);
        case action::forget:
            return forget_admission();
        case action::readmit:
            return readmit();
        case action::vote:
            return;
    }
}

void sim_link::connect() {
    ++generation_;
    stands_ = false;
    run_ = 0;
    connection_ = net_.connect(gateway_, node_);
    handshake_until_ = ctx_.now() + ctx_.set.node_dead_after;
    look_at(handshake_until_);
}

void sim_link::opened(network::connection c, network::opening how) {
    if (c != connection_) {
        if (how == network::opening::stands) net_.close(c);
        return;
    }
    if (how != network::opening::stands) {
        connection_ = network::none;
        return lose("refused");
    }
    stands_ = true;
    // What a client library does that reconnects by itself.
    for (const request& q : to_replay_) {
        net_.send(connection_, q);
        in_flight_.push({q, ctx_.now(), false});
    }
    to_replay_.clear();
    perform(supervisor_.connected());
}

void sim_link::identify() {
    reviewed_at_ = ctx_.now();
    handshake_until_ = ctx_.now() + ctx_.set.node_dead_after;
    look_at(handshake_until_);
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
    facts.kept_unsynced = r.kept_unsynced || ctx_.broken(mutation::sync_end_not_kept);
    facts.marks = marks_of(r.marks);
    facts.admitted_marks = marks_of(r.admitted_marks);
    if (r.admitted_run != 0) facts.admitted_run_id = std::to_string(r.admitted_run);
    facts.claim = std::to_string(r.claim);
    facts.admitted_epoch = lockcore::epoch{r.base >> 32};
    run_ = r.live_run;
    looked_at_ = r.marks;
    const bool was_quarantined = supervisor_.state() == lockcore::node_state::quarantined;
    const step next = supervisor_.identified(std::move(facts), local_time());
    if (!was_quarantined && supervisor_.state() == lockcore::node_state::quarantined) ctx_.hit(probe::quarantined);
    if (votes()) ctx_.note("node votes", gateway_, node_, run_, epoch_seen());
    perform(next);
}

void sim_link::ask_register(epoch_register::question what) {
    epoch_register::call c;
    c.what = what;
    c.gateway = gateway_;
    c.node = node_;
    c.serial = serial_;
    c.seen = owner_.highest_epoch();
    c.life = supervisor_.life();
    c.synced = supervisor_.facts().syncs_every_write;
    epochs_.ask(std::move(c));
    if (what == epoch_register::question::draw && ctx_.broken(mutation::early_draw) && spare_epoch_)
        use_epoch(*spare_epoch_);
}

void sim_link::register_answered(const epoch_register::call& answer) {
    const bool drawn = answer.done && answer.what == epoch_register::question::draw;
    if (drawn && ctx_.broken(mutation::early_draw)) {
        // One is kept for the next time, and so is older than what it will be used for.
        const bool used_already = spare_epoch_.has_value();
        spare_epoch_ = answer.epoch;
        if (used_already) return;
    }
    if (answer.serial != serial_) return;
    if (!answer.done) return perform(supervisor_.register_failed("out of reach"));
    switch (answer.what) {
        case epoch_register::question::find: {
            lockcore::node_record record;
            record.known = answer.known;
            record.drawn = lockcore::epoch{answer.epoch};
            record.synced = answer.synced || ctx_.broken(mutation::trusts_fsync_of_today);
            return record_found(record);
        }
        case epoch_register::question::draw:
            return use_epoch(answer.epoch);
        case epoch_register::question::note_unsynced:
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

void sim_link::forget_admission() {
    handshake_until_ = ctx_.now() + ctx_.set.node_dead_after;
    look_at(handshake_until_);
    request q;
    q.kind = request_kind::forget;
    net_.send(connection_, q);
}

void sim_link::readmit() {
    handshake_until_ = ctx_.now() + ctx_.set.node_dead_after;
    look_at(handshake_until_);
    request q;
    q.kind = request_kind::readmit;
    q.run = run_;
    q.base = value_of(supervisor_.drawn()) << 32;
    q.marks = looked_at_;
    q.syncs = supervisor_.facts().syncs_every_write;
    q.claim = static_cast<std::uint32_t>(std::stoul(supervisor_.facts().claim));
    net_.send(connection_, q);
}

// --- connection

void sim_link::drop(const char* why) {
    if (connection_ != network::none) net_.close(connection_);
    ctx_.hit(probe::node_cut_off);
    lose(why);
}

void sim_link::lose(const char* why) {
    connection_ = network::none;
    stands_ = false;
    fifo<sent> unanswered = std::exchange(in_flight_, {});
    for (sent& s : unanswered) {
        if (ctx_.broken(mutation::replay_on_reconnect)) {
            to_replay_.push_back(s.asked);
        } else {
            owner_.on_reply(s.asked, node_, only(reply_status::broken), true);
        }
    }
    handshake_until_ = sim_time::max();
    ++generation_;
    ctx_.note("link lost", gateway_, node_, unanswered.size());
    perform(supervisor_.disconnected(why));
}

void sim_link::ended(network::connection c) {
    if (c == connection_) lose("the connection was closed");
}

void sim_link::look_at(sim_time when) {
    if (when >= looks_at_) return;
    looks_at_ = when;
    ctx_.events.at(when, {.kind = event_kind::link_looks, .who = static_cast<std::uint8_t>(gateway_), .a = node_});
}

void sim_link::looks() {
    const sim_time now = ctx_.now();
    if (now < looks_at_) return;  // one that was planned earlier came first
    looks_at_ = sim_time::max();
    if (connection_ == network::none) return;
    if (now >= handshake_until_) return drop("does not answer");
    if (!in_flight_.empty() && now - in_flight_.front().at >= ctx_.set.node_dead_after) return drop("does not answer");
    if (votes() && handshake_until_ == sim_time::max() && now - reviewed_at_ >= review_every) {
        ctx_.hit(probe::node_reviewed);
        identify();
    } else if (votes() && in_flight_.empty() && handshake_until_ == sim_time::max() && now - heard_at_ >= silence_max) {
        handshake_until_ = now + ctx_.set.node_dead_after;
        request q;
        q.kind = request_kind::ping;
        net_.send(connection_, q);
    }
    sim_time next = handshake_until_;
    if (votes()) next = std::min(next, std::max(heard_at_ + silence_max, now + silence_max));
    // Being told of a timeout may send more, which comes to stand behind; what is told already stays told.
    const std::size_t known = in_flight_.size();
    for (std::size_t i = 0; i < known && i < in_flight_.size(); ++i) {
        sent& s = *(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
        if (s.overdue) continue;
        if (now - s.at < ctx_.set.node_timeout) break;
        s.overdue = true;
        ctx_.hit(probe::node_timed_out);
        const request asked = s.asked;
        owner_.on_reply(asked, node_, only(reply_status::timeout), false);
    }
    for (const sent& s : in_flight_) {
        if (s.overdue) continue;
        next = std::min(next, s.at + ctx_.set.node_timeout);
        break;
    }
    if (!in_flight_.empty()) next = std::min(next, in_flight_.front().at + ctx_.set.node_dead_after);
    if (next != sim_time::max()) look_at(next);
}

// --- requests

reply_status sim_link::send(request q) {
    if (connection_ == network::none || !stands_) return reply_status::unreachable;
    if (!votes()) return reply_status::not_admitted;
    const bool gives_back = q.command == lockcore::command_kind::release || q.command == lockcore::command_kind::undo;
    if (!gives_back && !in_flight_.empty() && in_flight_.front().overdue) return reply_status::timeout;
    q.run = run_;
    net_.send(connection_, q);
    in_flight_.push({q, ctx_.now(), false});
    look_at(ctx_.now() + ctx_.set.node_timeout);
    return reply_status::ok;
}

void sim_link::arrived(network::connection c, const reply& r) {
    if (c != connection_) return;
    heard_at_ = ctx_.now();
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
        case request_kind::forget:
            handshake_until_ = sim_time::max();
            perform(supervisor_.forgotten({}));
            break;
        case request_kind::ping:
            handshake_until_ = sim_time::max();
            break;
    }
    if (votes()) look_at(ctx_.now() + silence_max);
}

void sim_link::answered(const reply& r) {
    const sent s = in_flight_.pop();
    if (r.lease.status == reply_status::not_admitted && votes()) perform(supervisor_.found_not_admitted());
    owner_.on_reply(s.asked, node_, r.lease, true);
}

}  // namespace sim
