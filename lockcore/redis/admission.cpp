#include <redis/admission.hpp>

#include <redis/node_info.hpp>
#include <redis/resp_command.hpp>
#include <redis/script_set.hpp>

#include <hiredis/hiredis.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace lockcore::redis {

admission::admission(boost::asio::io_context& io, node_index index, const config& cfg, collaborators services)
    : io_(io),
      index_(index),
      config_(cfg),
      address_(cfg.nodes[value_of(index)]),
      services_(services),
      supervisor_(cfg.max_ttl),
      delay_(io) {
    status_.name = address_.name;
    status_.address = address_.host + ":" + std::to_string(address_.port);
    connection::event_handlers handlers;
    // `this` is safe: after stop() the connection calls no handler.
    handlers.connected = [this] { perform(supervisor_.connected()); };
    handlers.lost = [this](const std::string& reason) {
        handshake_deadline_ = monotonic_time::max();
        perform(supervisor_.disconnected(reason));
    };
    connection_ = std::make_shared<connection>(io, address_, std::move(handlers));
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
    // Even without a delay the action runs from the timer, so that no report is made inside another one.
    delay_.expires_after(step.delay);
    delay_.async_wait([self = shared_from_this(), next = step.next, number = steps_](boost::system::error_code e) {
        if (e || self->stopped_ || number != self->steps_) return;
        switch (next) {
            case node_supervisor::action::connect:
                self->handshake_deadline_ = std::chrono::steady_clock::now() + self->config_.node_dead_after;
                return self->connection_->open();
            case node_supervisor::action::identify:
                return self->identify();
            case node_supervisor::action::find_record:
            case node_supervisor::action::draw_epoch:
            case node_supervisor::action::note_unsynced:
                return self->start_register_query(next);
            case node_supervisor::action::delete_admission:
                return self->delete_admission();
            case node_supervisor::action::readmit:
                return self->readmit();
            case node_supervisor::action::vote:
                return;
        }
    });
}

void admission::send_command(const std::string& command, std::function<void(const redisReply*)> on_reply) {
    connection_->send(command, [self = shared_from_this(), on_reply = std::move(on_reply),
                                generation = connection_->generation()](const redisReply* r) {
        if (r && !self->stopped_ && generation == self->connection_->generation()) on_reply(r);
    });
}

/// Loads the scripts that the server does not have; a server keeps its scripts over connections.
void admission::load_missing_scripts() {
    resp_command known;
    known.arg("SCRIPT").arg("EXISTS");
    for (std::size_t k = 0; k < command_kinds; ++k)
        known.arg(script_for(static_cast<command_kind>(k)).sha1);
    send_command(known.finish(), [this](const redisReply* r) {
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
    // All commands are sent at once. Redis answers in order, and the last answer completes the facts.
    auto found = std::make_shared<raw_node_facts>();
    connection_->authenticate([found](const std::string& error) { found->refusal = error; });
    load_missing_scripts();
    // The marks are read before the settings: a later change of the settings changes the marks too.
    send_command(resp_command().arg("EVAL").arg(identify_script().text).arg(std::uint64_t{1}).arg("fg:node").finish(),
                 [found](const redisReply* r) {
                     if (r->type == REDIS_REPLY_ERROR) found->record_refusal = text_of(r);
                     for (std::size_t i = 0; r->type == REDIS_REPLY_ARRAY && i < r->elements; ++i)
                         found->record.emplace_back(text_of(r->element[i]));
                 });
    send_command(resp_command().arg("INFO").finish(), [found](const redisReply* r) {
        if (r->type == REDIS_REPLY_ERROR && found->refusal.empty()) found->refusal = text_of(r);
        found->info = text_of(r);
    });
    for (const std::string_view setting : sync_settings) {
        send_command(
            resp_command().arg("CONFIG").arg("GET").arg(setting).finish(), [this, found, setting](const redisReply* r) {
                if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
                    found->persistence += std::string(setting) + ' ' + std::string(text_of(r->element[1])) + ' ';
                if (setting == sync_settings.back()) process_facts(*found);
            });
    }
}

void admission::process_facts(const raw_node_facts& raw) {
    node_facts facts = parse_node_facts(raw);
    // Without credentials every answer may be that of another user. A server that can't be a node need not run scripts.
    const bool needs_record = !facts.run_id.empty() && find_misconfiguration(facts).empty();
    const std::string& refusal = raw.refusal.empty() && needs_record ? raw.record_refusal : raw.refusal;
    if (!refusal.empty()) return end_refused_identification(refusal);
    if (facts.run_id.empty() || (needs_record && raw.record.size() != record_fields)) {
        handshake_deadline_ = monotonic_time::max();
        return connection_->drop("does not answer like a Redis server: " + raw.info.substr(0, 100));
    }
    facts.duplicate_of = services_.observer.find_duplicate(index_, facts.run_id);
    // The first gateway that reads these data writes a claim. Nothing is written to a server that can't be a node.
    if (!facts.is_admitted() && facts.claim.empty() && find_misconfiguration(facts).empty())
        return write_claim(std::move(facts));
    finish_identification(std::move(facts));
}

void admission::write_claim(node_facts facts) {
    const std::string claim(nonce::from_bits(services_.random.next(), services_.random.next()).str());
    auto refusal = std::make_shared<std::string>();
    send_command(resp_command().arg("HSETNX").arg("fg:node").arg("claim").arg(claim).finish(),
                 [refusal](const redisReply* r) {
                     if (r->type == REDIS_REPLY_ERROR) *refusal = text_of(r);
                 });
    send_command(resp_command().arg("HGET").arg("fg:node").arg("claim").finish(),
                 [this, refusal, facts = std::move(facts)](const redisReply* r) mutable {
                     if (r->type == REDIS_REPLY_ERROR) *refusal = text_of(r);
                     if (!refusal->empty()) return end_refused_identification(*refusal);
                     if (r->type == REDIS_REPLY_STRING) facts.claim = text_of(r);
                     finish_identification(std::move(facts));
                 });
}

void admission::end_refused_identification(const std::string& error) {
    handshake_deadline_ = monotonic_time::max();
    perform(supervisor_.commands_refused(error));
}

void admission::finish_identification(node_facts facts) {
    handshake_deadline_ = monotonic_time::max();
    const auto now = std::chrono::steady_clock::now();
    last_answer_at_ = now;
    const node_state old_state = supervisor_.state();
    const auto next = supervisor_.identified(std::move(facts), now);
    report_quarantine(old_state);
    perform(next);
}

void admission::report_quarantine(node_state old_state) {
    if (old_state != node_state::quarantined && supervisor_.state() == node_state::quarantined)
        services_.observer.on_node_event(index_, event_kind::node_quarantined, supervisor_.detail());
}

boost::asio::awaitable<result<node_supervisor::step>> admission::query_register(node_supervisor::action query) {
    std::string name = address_.name;
    // The answer is ignored if another step was taken meanwhile, as after the loss of the connection.
    const auto is_outdated = [this, number = steps_] { return stopped_ || number != steps_; };
    failure outdated;
    outdated.code = errc::cancelled;
    if (query == node_supervisor::action::find_record) {
        auto record = co_await services_.epochs.find(std::move(name));
        if (is_outdated()) co_return outdated;
        if (!record) co_return record.error();
        const node_state old_state = supervisor_.state();
        const auto next = supervisor_.record_found(*record, std::chrono::steady_clock::now());
        report_quarantine(old_state);
        co_return next;
    }
    if (query == node_supervisor::action::note_unsynced) {
        const auto noted = co_await services_.epochs.note_unsynced(std::move(name));
        if (is_outdated()) co_return outdated;
        if (!noted) co_return noted.error();
        co_return supervisor_.unsynced_noted();
    }
    epoch_request request;
    request.node_name = std::move(name);
    request.life = supervisor_.life();
    request.synced = supervisor_.facts().syncs_every_write;
    request.highest_observed = services_.observer.highest_epoch();
    auto drawn = co_await services_.epochs.draw(std::move(request));
    if (is_outdated()) co_return outdated;
    if (!drawn) co_return drawn.error();
    if (!drawn->repeated) {
        services_.observer.on_node_event(index_, event_kind::epoch_raised,
                                         "epoch " + std::to_string(value_of(drawn->value)));
    }
    co_return supervisor_.epoch_drawn(drawn->value);
}

void admission::start_register_query(node_supervisor::action query) {
    // A named coroutine without captures: its parameters live in its frame (GCC bug 107288, C++ Core Guidelines CP.51).
    auto run = [](std::shared_ptr<admission> self, node_supervisor::action wanted) -> boost::asio::awaitable<void> {
        const std::uint64_t number = self->steps_;
        std::string reason;
        try {
            const auto next = co_await self->query_register(wanted);
            if (next) self->perform(*next);
            if (next || next.error().code == errc::cancelled) co_return;
            reason = next.error().detail;
        } catch (const std::exception& thrown) {
            reason = thrown.what();
        }
        if (!self->stopped_ && number == self->steps_)
            self->perform(self->supervisor_.register_failed(std::move(reason)));
    };
    auto running = run(shared_from_this(), query);
    boost::asio::co_spawn(io_, std::move(running), boost::asio::detached);
}

void admission::delete_admission() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    // If another gateway has readmitted the node meanwhile, this causes one more quarantine, which does no harm.
    const std::string command = resp_command().arg("HDEL").arg("fg:node").arg("run").arg("claim").finish();
    send_command(command, [this](const redisReply* r) {
        handshake_deadline_ = monotonic_time::max();
        perform(supervisor_.admission_deleted(r->type == REDIS_REPLY_ERROR ? std::string(text_of(r)) : std::string()));
    });
}

void admission::readmit() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    resp_command command;
    command.arg("EVAL").arg(readmit_script().text).arg(std::uint64_t{1}).arg("fg:node");
    command.arg(supervisor_.facts().run_id)
        .arg(value_of(supervisor_.drawn()) * tokens_per_epoch)
        // An admitted node gets new marks only: with an empty claim READMIT cannot admit it again.
        .arg(supervisor_.facts().is_admitted() ? std::string_view() : supervisor_.facts().claim)
        .arg(supervisor_.facts().marks.text)
        .arg(supervisor_.facts().syncs_every_write ? "yes" : "no");
    send_command(command.finish(), [this](const redisReply* r) {
        handshake_deadline_ = monotonic_time::max();
        const std::string_view answer = text_of(r);
        if (r->type == REDIS_REPLY_ERROR) return perform(supervisor_.readmit_refused(std::string(answer)));
        if (answer == "OK") {
            services_.observer.on_node_event(index_, event_kind::node_readmitted,
                                             "epoch " + std::to_string(value_of(supervisor_.drawn())));
        }
        perform(supervisor_.readmit_answered(answer == "OK" || answer == "ALREADY"));
    });
}

void admission::ping() {
    const auto sent_at = std::chrono::steady_clock::now();
    handshake_deadline_ = sent_at + config_.node_dead_after;
    send_command(resp_command().arg("PING").finish(), [this, sent_at](const redisReply*) {
        handshake_deadline_ = monotonic_time::max();
        const auto now = std::chrono::steady_clock::now();
        on_answer(now, std::chrono::duration_cast<std::chrono::microseconds>(now - sent_at));
    });
}

void admission::tick(monotonic_time now, bool has_unanswered) {
    publish_status(now);
    if (now >= handshake_deadline_) {
        handshake_deadline_ = monotonic_time::max();
        return drop_connection("does not answer");
    }
    if (!is_voting() || handshake_deadline_ != monotonic_time::max()) return;
    if (now - reviewed_at_ >= review_interval) {
        identify();
    } else if (!has_unanswered && now - last_answer_at_ >= ping_after) {
        ping();
    }
}

void admission::on_answer(monotonic_time now, std::chrono::microseconds latency) {
    last_answer_at_ = now;
    latency_ = latency;
}

void admission::on_script_error(const std::string& error) {
    if (!is_voting()) return;
    perform(error.starts_with("UNINIT") ? supervisor_.found_not_admitted() : supervisor_.commands_refused(error));
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
    if (changed && !stopped_) services_.observer.on_state_changed(index_);
}

node_status admission::status() const {
    const std::lock_guard lock(status_mutex_);
    return status_;
}

}  // namespace lockcore::redis
