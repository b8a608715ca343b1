#include <redis/admission.hpp>

#include <redis/node_info.hpp>
#include <redis/resp_command.hpp>
#include <redis/script_set.hpp>

#include <hiredis/hiredis.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace lockcore::redis {

admission::admission(boost::asio::io_context& io, node_index index, const config& cfg, collaborators with)
    : io_(io),
      index_(index),
      config_(cfg),
      address_(cfg.nodes[value_of(index)]),
      with_(with),
      supervisor_(cfg.max_ttl),
      delay_(io) {
    status_.name = address_.name;
    status_.address = address_.host + ":" + std::to_string(address_.port);
    connection::events on;
    // The connection dies with this object: stop() closes it for good.
    on.connected = [this] { perform(supervisor_.connected()); };
    on.lost = [this](const std::string& why) {
        handshake_deadline_ = monotonic_time::max();
        perform(supervisor_.disconnected(why));
    };
    connection_ = std::make_shared<connection>(io, address_, std::move(on));
}

admission::~admission() = default;

void admission::start() {
    stopped_ = false;
    perform({node_supervisor::action::connect, milliseconds{0}});
}

void admission::stop() {
    stopped_ = true;
    delay_.cancel();
    connection_->close();
    supervisor_.disconnected("closed");
    publish_status(std::chrono::steady_clock::now());
}

void admission::perform(node_supervisor::step step) {
    publish_status(std::chrono::steady_clock::now());
    ++steps_;
    if (stopped_ || step.next == node_supervisor::action::vote) return;
    // Always through the timer, so that no input is fed from inside another.
    delay_.expires_after(step.delay);
    delay_.async_wait([self = shared_from_this(), next = step.next, mine = steps_](boost::system::error_code e) {
        if (e || self->stopped_ || mine != self->steps_) return;
        switch (next) {
            case node_supervisor::action::connect:
                self->handshake_deadline_ = std::chrono::steady_clock::now() + self->config_.node_dead_after;
                return self->connection_->open();
            case node_supervisor::action::identify:
                return self->identify();
            case node_supervisor::action::find_record:
            case node_supervisor::action::draw_epoch:
            case node_supervisor::action::note_unsynced:
                return self->use_register(next);
            case node_supervisor::action::forget:
                return self->forget();
            case node_supervisor::action::readmit:
                return self->readmit();
            case node_supervisor::action::vote:
                return;
        }
    });
}

void admission::ask(const std::string& command, std::function<void(const redisReply*)> then) {
    connection_->send(command, [self = shared_from_this(), then = std::move(then),
                                mine = connection_->generation()](const redisReply* r) {
        if (r && !self->stopped_ && mine == self->connection_->generation()) then(r);
    });
}

/// Scripts stay with the server, so only what a new one lacks is sent, before anything that needs it.
void admission::load_missing_scripts() {
    resp_command known;
    known.arg("SCRIPT").arg("EXISTS");
    for (std::size_t k = 0; k < command_kinds; ++k)
        known.arg(script_for(static_cast<command_kind>(k)).sha1);
    ask(known.finish(), [this](const redisReply* r) {
        for (std::size_t k = 0; k < command_kinds; ++k) {
            if (r->type == REDIS_REPLY_ARRAY && k < r->elements && r->element[k]->integer == 1) continue;
            const script& missing = script_for(static_cast<command_kind>(k));
            connection_->send(resp_command().arg("SCRIPT").arg("LOAD").arg(missing.text).finish(),
                              [](const redisReply*) {});
        }
    });
}

void admission::identify() {
    const auto now = std::chrono::steady_clock::now();
    handshake_deadline_ = now + config_.node_dead_after;
    reviewed_at_ = now;
    // All in one go; Redis answers in order, and the last answer decides.
    connection_->authenticate();
    load_missing_scripts();
    auto found = std::make_shared<node_look>();
    // Before the settings: what changes them behind this shows in the marks.
    ask(resp_command().arg("EVAL").arg(identify_script().text).arg(std::uint64_t{1}).arg("fg:node").finish(),
        [found](const redisReply* r) {
            for (std::size_t i = 0; r->type == REDIS_REPLY_ARRAY && i < r->elements; ++i)
                found->record.emplace_back(text_of(r->element[i]));
        });
    ask(resp_command().arg("INFO").finish(), [found](const redisReply* r) { found->info = text_of(r); });
    for (const char* setting : sync_settings) {
        ask(resp_command().arg("CONFIG").arg("GET").arg(setting).finish(), [this, found, setting](const redisReply* r) {
            if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
                found->persistence += std::string(setting) + ' ' + std::string(text_of(r->element[1])) + ' ';
            if (setting == sync_settings.back()) looked(*found);
        });
    }
}

void admission::looked(const node_look& found) {
    node_facts facts = facts_from(found);
    if (facts.run_id.empty() || (facts.role == "master" && found.record.size() != record_fields)) {
        handshake_deadline_ = monotonic_time::max();
        return connection_->drop("does not answer as Redis does: " + found.info.substr(0, 100));
    }
    facts.same_as = with_.observer.same_server(index_, facts.run_id);
    // Whoever looks at these data first leaves a claim; on a server that can't be a node nothing is written.
    if (!facts.is_admitted() && facts.claim.empty() && why_no_node(facts).empty()) return claim(std::move(facts));
    identified(std::move(facts));
}

void admission::claim(node_facts facts) {
    const std::string claim(nonce::from_bits(with_.random.next(), with_.random.next()).str());
    ask(resp_command().arg("HSETNX").arg("fg:node").arg("claim").arg(claim).finish(), [](const redisReply*) {});
    ask(resp_command().arg("HGET").arg("fg:node").arg("claim").finish(),
        [this, facts = std::move(facts)](const redisReply* r) mutable {
            if (r->type == REDIS_REPLY_STRING) facts.claim = text_of(r);
            identified(std::move(facts));
        });
}

void admission::identified(node_facts facts) {
    handshake_deadline_ = monotonic_time::max();
    const auto now = std::chrono::steady_clock::now();
    heard_at_ = now;
    const node_state before = supervisor_.state();
    const auto next = supervisor_.identified(std::move(facts), now);
    report_quarantine(before);
    perform(next);
}

void admission::report_quarantine(node_state before) {
    if (before != node_state::quarantined && supervisor_.state() == node_state::quarantined)
        with_.observer.node_changed(index_, event_kind::node_quarantined, supervisor_.detail());
}

boost::asio::awaitable<result<node_supervisor::step>> admission::call_register(node_supervisor::action what) {
    std::string name = address_.name;
    // Nothing is done with an answer that comes when the connection is over: the supervisor has taken another step.
    const auto outdated = [this, asked_in = steps_] { return stopped_ || asked_in != steps_; };
    failure gone;
    gone.code = errc::cancelled;
    if (what == node_supervisor::action::find_record) {
        auto record = co_await with_.epochs.find(std::move(name));
        if (outdated()) co_return gone;
        if (!record) co_return record.error();
        const node_state before = supervisor_.state();
        const auto next = supervisor_.record_found(*record, std::chrono::steady_clock::now());
        report_quarantine(before);
        co_return next;
    }
    if (what == node_supervisor::action::note_unsynced) {
        const auto noted = co_await with_.epochs.note_unsynced(std::move(name));
        if (outdated()) co_return gone;
        if (!noted) co_return noted.error();
        co_return supervisor_.unsynced_noted();
    }
    epoch_request request;
    request.node_name = std::move(name);
    request.life = supervisor_.life();
    request.synced = supervisor_.facts().syncs_every_write;
    request.seen = with_.observer.highest_epoch();
    auto drawn = co_await with_.epochs.draw(std::move(request));
    if (outdated()) co_return gone;
    if (!drawn) co_return drawn.error();
    if (!drawn->repeated) {
        with_.observer.node_changed(index_, event_kind::epoch_raised,
                                    "epoch " + std::to_string(value_of(drawn->value)));
    }
    co_return supervisor_.epoch_drawn(drawn->value);
}

void admission::use_register(node_supervisor::action what) {
    // Named before co_spawn, and no captures: the parameters live in the frame (GCC bug 107288, CP.51).
    auto call = [](std::shared_ptr<admission> self, node_supervisor::action wanted) -> boost::asio::awaitable<void> {
        const std::uint64_t asked_in = self->steps_;
        std::string why;
        try {
            const auto next = co_await self->call_register(wanted);
            if (next) self->perform(*next);
            if (next || next.error().code == errc::cancelled) co_return;
            why = next.error().detail;
        } catch (const std::exception& thrown) {
            why = thrown.what();
        }
        if (!self->stopped_ && asked_in == self->steps_)
            self->perform(self->supervisor_.register_failed(std::move(why)));
    };
    auto running = call(shared_from_this(), what);
    boost::asio::co_spawn(io_, std::move(running), boost::asio::detached);
}

void admission::forget() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    // A gateway that did so before, and has let the node in again meanwhile, has it sit out once more: no harm.
    ask(resp_command().arg("HDEL").arg("fg:node").arg("run").arg("claim").finish(), [this](const redisReply* r) {
        handshake_deadline_ = monotonic_time::max();
        perform(supervisor_.forgotten(r->type == REDIS_REPLY_ERROR ? std::string(text_of(r)) : std::string()));
    });
}

void admission::readmit() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    resp_command command;
    command.arg("EVAL").arg(readmit_script().text).arg(std::uint64_t{1}).arg("fg:node");
    command.arg(supervisor_.facts().run_id)
        .arg(value_of(supervisor_.drawn()) * tokens_per_epoch)
        // Of a node that is admitted only the marks are new: without a claim it is not let in anew.
        .arg(supervisor_.facts().is_admitted() ? std::string_view() : supervisor_.facts().claim)
        .arg(supervisor_.facts().marks.text)
        .arg(supervisor_.facts().syncs_every_write ? "yes" : "no");
    ask(command.finish(), [this](const redisReply* r) {
        handshake_deadline_ = monotonic_time::max();
        const std::string_view answer = text_of(r);
        if (r->type == REDIS_REPLY_ERROR) return perform(supervisor_.readmit_refused(std::string(answer)));
        if (answer == "OK") {
            with_.observer.node_changed(index_, event_kind::node_readmitted,
                                        "epoch " + std::to_string(value_of(supervisor_.drawn())));
        }
        perform(supervisor_.readmit_answered(answer == "OK" || answer == "ALREADY"));
    });
}

void admission::ping() {
    const auto sent_at = std::chrono::steady_clock::now();
    handshake_deadline_ = sent_at + config_.node_dead_after;
    ask(resp_command().arg("PING").finish(), [this, sent_at](const redisReply*) {
        handshake_deadline_ = monotonic_time::max();
        const auto now = std::chrono::steady_clock::now();
        heard(now, std::chrono::duration_cast<std::chrono::microseconds>(now - sent_at));
    });
}

void admission::tick(monotonic_time now, bool owes) {
    publish_status(now);
    if (now >= handshake_deadline_) {
        handshake_deadline_ = monotonic_time::max();
        return give_up("does not answer");
    }
    if (!votes() || handshake_deadline_ != monotonic_time::max()) return;
    if (now - reviewed_at_ >= review_every) {
        identify();
    } else if (!owes && now - heard_at_ >= silence_max) {
        ping();
    }
}

void admission::heard(monotonic_time now, std::chrono::microseconds latency) {
    heard_at_ = now;
    latency_ = latency;
}

void admission::refused(const std::string& why) {
    if (!votes()) return;
    perform(why.starts_with("UNINIT") ? supervisor_.found_not_admitted() : supervisor_.commands_refused(why));
}

void admission::publish_status(monotonic_time now) {
    bool changed = false;
    {
        const std::lock_guard lock(status_mutex_);
        changed = status_.state != supervisor_.state();
        status_.state = supervisor_.state();
        status_.detail = supervisor_.detail();
        status_.run_id = supervisor_.facts().run_id;
        status_.admitted_epoch = supervisor_.admitted_epoch();
        status_.latency = latency_;
        status_.quarantine_left = supervisor_.quarantine_left(now);
    }
    if (changed && !stopped_) with_.observer.state_changed(index_);
}

node_status admission::status() const {
    const std::lock_guard lock(status_mutex_);
    return status_;
}

}  // namespace lockcore::redis
