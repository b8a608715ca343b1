#include <redis/admission.hpp>

#include <redis/node_info.hpp>
#include <redis/resp_command.hpp>
#include <redis/script_set.hpp>

#include <hiredis/hiredis.h>
#include <boost/asio/co_spawn.hpp>

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
            case node_supervisor::action::draw_epoch:
                return self->draw_epoch();
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

void admission::identify() {
    const auto now = std::chrono::steady_clock::now();
    handshake_deadline_ = now + config_.node_dead_after;
    reviewed_at_ = now;
    // All in one go; Redis answers in order, and the last answer decides. Scripts are loaded along, once a connection
    // and after SCRIPT FLUSH.
    connection_->authenticate();
    for (std::size_t k = 0; k < command_kinds; ++k) {
        connection_->send(
            resp_command().arg("SCRIPT").arg("LOAD").arg(script_for(static_cast<command_kind>(k)).text).finish(),
            [](const redisReply*) {});
    }
    auto found = std::make_shared<node_look>();
    ask(resp_command().arg("INFO").finish(), [found](const redisReply* r) { found->info = text_of(r); });
    for (const char* key : {"appendonly", "appendfsync"}) {
        ask(resp_command().arg("CONFIG").arg("GET").arg(key).finish(), [found](const redisReply* r) {
            if (r->type == REDIS_REPLY_ARRAY && r->elements == 2)
                found->persistence += std::string(text_of(r->element[1])) + ' ';
        });
    }
    read_record(found, true);
}

void admission::read_record(std::shared_ptr<node_look> found, bool may_claim) {
    const std::string command =
        resp_command().arg("HMGET").arg("fg:node").arg("run").arg("base").arg("claim").arg("sync").finish();
    ask(command, [this, found = std::move(found), may_claim](const redisReply* r) {
        if (r->type != REDIS_REPLY_ARRAY || r->elements != 4) {
            handshake_deadline_ = monotonic_time::max();
            return connection_->drop("does not answer as Redis does: " + std::string(text_of(r)));
        }
        node_facts facts = facts_from(*found);
        facts.admitted_run_id = text_of(r->element[0]);
        facts.admitted_epoch = epoch{number_from(text_of(r->element[1])) / tokens_per_epoch};
        facts.claim = text_of(r->element[2]);
        facts.synced_so_far = text_of(r->element[3]) == "always";
        facts.same_as = with_.observer.same_server(index_, facts.run_id);
        // Whoever looks at these data first leaves a claim; on a server that can't be a node nothing is written.
        if (facts.claim.empty() && may_claim && why_no_node(facts).empty()) return claim(found);
        identified(std::move(facts));
    });
}

void admission::claim(std::shared_ptr<node_look> found) {
    const std::string claim(nonce::from_bits(with_.random.next(), with_.random.next()).str());
    ask(resp_command().arg("HSETNX").arg("fg:node").arg("claim").arg(claim).finish(), [](const redisReply*) {});
    read_record(std::move(found), false);
}

void admission::identified(node_facts facts) {
    handshake_deadline_ = monotonic_time::max();
    const auto now = std::chrono::steady_clock::now();
    heard_at_ = now;
    note_persistence(facts);
    const node_state before = supervisor_.state();
    const auto next = supervisor_.identified(std::move(facts), now);
    if (before != node_state::quarantined && supervisor_.state() == node_state::quarantined)
        with_.observer.node_changed(index_, event_kind::node_quarantined, supervisor_.detail());
    perform(next);
}

/// What a later process of this node may rely on: that all written up to its crash is on its disk. Only while it votes:
/// what an unknown process left behind may have been written otherwise.
void admission::note_persistence(const node_facts& facts) {
    if (facts.admitted_run_id != facts.run_id || facts.syncs_every_write == facts.synced_so_far) return;
    resp_command note;
    if (facts.syncs_every_write) {
        note.arg("HSET").arg("fg:node").arg("sync").arg("always");
    } else {
        note.arg("HDEL").arg("fg:node").arg("sync");
    }
    ask(note.finish(), [](const redisReply*) {});
}

void admission::draw_epoch() {
    // Named before co_spawn, and no captures: the parameters live in the frame (GCC bug 107288, CP.51).
    auto draw = [](std::shared_ptr<admission> self, std::uint64_t generation) -> boost::asio::awaitable<void> {
        std::string name = self->address_.name;
        auto drawn = co_await self->with_.epochs.draw(std::move(name), self->with_.observer.highest_epoch());
        if (self->stopped_ || generation != self->connection_->generation()) co_return;
        if (!drawn) {
            self->perform(self->supervisor_.epoch_not_drawn(drawn.error().detail));
            co_return;
        }
        self->with_.observer.node_changed(self->index_, event_kind::epoch_raised,
                                          "epoch " + std::to_string(value_of(drawn->value)));
        const auto next = self->supervisor_.epoch_drawn(*drawn, std::chrono::steady_clock::now());
        if (self->supervisor_.state() == node_state::quarantined) {
            self->with_.observer.node_changed(self->index_, event_kind::node_quarantined, self->supervisor_.detail());
        }
        self->perform(next);
    };
    auto running = draw(shared_from_this(), connection_->generation());
    boost::asio::co_spawn(
        io_, std::move(running),
        [self = shared_from_this(), generation = connection_->generation()](const std::exception_ptr& e) {
            if (!e || self->stopped_ || generation != self->connection_->generation()) return;
            try {
                std::rethrow_exception(e);
            } catch (const std::exception& thrown) {
                self->perform(self->supervisor_.epoch_not_drawn(thrown.what()));
            }
        });
}

void admission::readmit() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    resp_command command;
    command.arg("EVAL").arg(readmit_script().text).arg(std::uint64_t{1}).arg("fg:node");
    command.arg(supervisor_.facts().run_id)
        .arg(value_of(supervisor_.drawn()) * tokens_per_epoch)
        .arg(supervisor_.facts().claim);
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
    const std::lock_guard lock(status_mutex_);
    status_.state = supervisor_.state();
    status_.detail = supervisor_.detail();
    status_.run_id = supervisor_.facts().run_id;
    status_.admitted_epoch = supervisor_.admitted_epoch();
    status_.latency = latency_;
    status_.quarantine_left = supervisor_.quarantine_left(now);
}

node_status admission::status() const {
    const std::lock_guard lock(status_mutex_);
    return status_;
}

}  // namespace lockcore::redis
