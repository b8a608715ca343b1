#include <redis/node_link.hpp>

#include <redis/hiredis_adapter.hpp>
#include <redis/node_info.hpp>
#include <redis/resp_command.hpp>

#include <hiredis/async.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>

namespace lockcore::redis {

/// Commands that left together; hiredis' callback owns it.
struct node_link::batch {
    std::shared_ptr<node_link> link;
    std::uint64_t generation = 0;
    command_kind kind{};
    std::vector<batch_item> items;
    monotonic_time sent_at;
    bool overdue = false;    ///< Its commands were answered `timeout` already.
    bool with_text = false;  ///< Sent as EVAL after NOSCRIPT.
};

namespace {

node_link& link_of(const redisAsyncContext* c) {
    return *static_cast<node_link*>(c->data);
}

std::string_view text_of(const redisReply* r) {
    return r && r->str ? std::string_view(r->str, static_cast<std::size_t>(r->len)) : std::string_view{};
}

node_reply parse_item(command_kind kind, const redisReply* const* fields) {
    node_reply out;
    out.status = static_cast<reply_status>(fields[0]->integer);
    const auto value = fields[1]->integer, extra = fields[2]->integer;
    if (out.status == reply_status::held || kind == command_kind::inspect) {
        out.remaining = milliseconds{value};
        out.value = static_cast<std::uint64_t>(extra);
    } else {
        out.value = static_cast<std::uint64_t>(value);
    }
    return out;
}

}  // namespace

node_link::node_link(boost::asio::io_context& io, node_index index, const config& cfg, epoch_register& epochs,
                     random_source& random, link_observer& observer)
    : io_(io),
      index_(index),
      config_(cfg),
      address_(cfg.nodes[value_of(index)]),
      epochs_(epochs),
      random_(random),
      observer_(observer),
      supervisor_(cfg.max_ttl),
      delay_(io),
      resolver_(io) {
    status_.name = address_.name;
    status_.address = address_.host + ":" + std::to_string(address_.port);
}

node_link::~node_link() = default;

void node_link::open() {
    closed_ = false;
    perform({node_supervisor::action::connect, milliseconds{0}});
}

void node_link::close() {
    closed_ = true;
    delay_.cancel();
    resolver_.cancel();
    drop("closed");
}

// --- being let in
// -------------------------------------------------------------------------------------------------------------------

void node_link::perform(node_supervisor::step step) {
    publish_status(std::chrono::steady_clock::now());
    if (closed_ || step.next == node_supervisor::action::vote) return;
    // Always through the timer, so that no input is fed from inside another.
    delay_.expires_after(step.delay);
    delay_.async_wait(
        [self = shared_from_this(), next = step.next, generation = generation_](boost::system::error_code e) {
            if (e || self->closed_ || (generation != self->generation_ && next != node_supervisor::action::connect))
                return;
            switch (next) {
                case node_supervisor::action::connect:
                    return self->connect();
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

void node_link::connect() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    boost::system::error_code not_an_address;
    const auto address = boost::asio::ip::make_address(address_.host, not_an_address);
    if (!not_an_address) return connect_to({address, address_.port});
    resolver_.async_resolve(address_.host, std::to_string(address_.port),
                            [self = shared_from_this()](boost::system::error_code e,
                                                        const boost::asio::ip::tcp::resolver::results_type& found) {
                                if (self->closed_) return;
                                if (e || found.empty())
                                    return self->lost("its name can't be looked up: " + e.message());
                                self->connect_to(found.begin()->endpoint());
                            });
}

void node_link::connect_to(const boost::asio::ip::tcp::endpoint& endpoint) {
    redisAsyncContext* c = redisAsyncConnect(endpoint.address().to_string().c_str(), endpoint.port());
    if (!c || c->err) {
        const std::string why = c ? c->errstr : "out of memory";
        if (c) redisAsyncFree(c);
        return lost(why);
    }
    context_ = c;
    ++generation_;
    c->data = this;
    attach(*c, io_);
    redisAsyncSetConnectCallback(c, [](const redisAsyncContext* ctx, int status) {
        node_link& self = link_of(ctx);
        if (ctx != self.context_) return;
        // hiredis frees a context that failed to connect by itself, after this callback.
        const std::string why = status == REDIS_OK ? "" : ctx->errstr;
        if (status != REDIS_OK) self.context_ = nullptr;
        boost::asio::post(self.io_, [link = self.shared_from_this(), why, generation = self.generation_] {
            if (link->closed_ || generation != link->generation_) return;
            if (!why.empty()) return link->lost(why);
            if (link->context_) link->perform(link->supervisor_.connected());
        });
    });
    redisAsyncSetDisconnectCallback(c, [](const redisAsyncContext* ctx, int status) {
        node_link& self = link_of(ctx);
        if (ctx != self.context_) return;
        self.context_ = nullptr;
        const std::string why = status == REDIS_OK ? "the connection was closed" : ctx->errstr;
        boost::asio::post(self.io_, [link = self.shared_from_this(), why] { link->lost(why); });
    });
}

void node_link::identify() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    // All in one go; Redis answers in order, and the last answer decides. Scripts are loaded along, once a connection
    // and after SCRIPT FLUSH.
    if (!address_.password.empty()) {
        resp_command auth;
        auth.arg("AUTH");
        if (!address_.username.empty()) auth.arg(address_.username);
        run(auth.arg(address_.password).finish(), [](const redisReply*) {});
    }
    for (std::size_t k = 0; k < command_kinds; ++k) {
        run(resp_command().arg("SCRIPT").arg("LOAD").arg(script_for(static_cast<command_kind>(k)).text).finish(),
            [](const redisReply*) {});
    }
    auto found = std::make_shared<node_look>();
    run(resp_command().arg("INFO").finish(), [found](const redisReply* r) { found->info = text_of(r); });
    for (const char* key : {"appendonly", "appendfsync"}) {
        run(resp_command().arg("CONFIG").arg("GET").arg(key).finish(), [found](const redisReply* r) {
            if (r && r->type == REDIS_REPLY_ARRAY && r->elements == 2)
                found->persistence += std::string(text_of(r->element[1])) + ' ';
        });
    }
    const std::string claim(nonce::from_bits(random_.next(), random_.next()).str());
    run(resp_command().arg("HSETNX").arg("fg:node").arg("claim").arg(claim).finish(), [](const redisReply*) {});
    run(resp_command().arg("HMGET").arg("fg:node").arg("run").arg("base").arg("claim").finish(),
        [self = shared_from_this(), found, generation = generation_](const redisReply* r) {
            if (!r || self->closed_ || generation != self->generation_) return;
            self->handshake_deadline_ = monotonic_time::max();
            if (r->type != REDIS_REPLY_ARRAY || r->elements != 3)
                return self->drop("does not answer as Redis does: " + std::string(text_of(r)));
            node_facts facts = facts_from(*found);
            facts.admitted_run_id = text_of(r->element[0]);
            facts.admitted_epoch = epoch{number_from(text_of(r->element[1])) / tokens_per_epoch};
            facts.claim = text_of(r->element[2]);
            facts.same_as = self->observer_.same_server(self->index_, facts.run_id);
            const node_state before = self->supervisor_.state();
            const auto next = self->supervisor_.identified(std::move(facts), std::chrono::steady_clock::now());
            if (before != node_state::quarantined && self->supervisor_.state() == node_state::quarantined) {
                self->observer_.node_changed(self->index_, event_kind::node_quarantined, self->supervisor_.detail());
            }
            self->perform(next);
        });
}

void node_link::draw_epoch() {
    // Named before co_spawn, and no captures: the parameters live in the frame (GCC bug 107288, CP.51).
    auto draw = [](std::shared_ptr<node_link> self, std::uint64_t generation) -> boost::asio::awaitable<void> {
        std::string name = self->address_.name;
        auto drawn = co_await self->epochs_.draw(std::move(name), self->observer_.highest_epoch());
        if (self->closed_ || generation != self->generation_) co_return;
        if (!drawn) {
            self->perform(self->supervisor_.epoch_not_drawn(drawn.error().detail));
            co_return;
        }
        self->observer_.node_changed(self->index_, event_kind::epoch_raised,
                                     "epoch " + std::to_string(value_of(drawn->value)));
        const auto next = self->supervisor_.epoch_drawn(*drawn, std::chrono::steady_clock::now());
        if (self->supervisor_.state() == node_state::quarantined) {
            self->observer_.node_changed(self->index_, event_kind::node_quarantined, self->supervisor_.detail());
        }
        self->perform(next);
    };
    auto running = draw(shared_from_this(), generation_);
    boost::asio::co_spawn(io_, std::move(running), [](const std::exception_ptr& e) {
        if (e) std::rethrow_exception(e);
    });
}

void node_link::readmit() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    resp_command command;
    command.arg("EVAL").arg(readmit_script().text).arg(std::uint64_t{1}).arg("fg:node");
    command.arg(supervisor_.facts().run_id)
        .arg(value_of(supervisor_.drawn()) * tokens_per_epoch)
        .arg(supervisor_.facts().claim);
    run(command.finish(), [self = shared_from_this(), generation = generation_](const redisReply* r) {
        if (!r || self->closed_ || generation != self->generation_) return;
        self->handshake_deadline_ = monotonic_time::max();
        const std::string_view answer = text_of(r);
        if (r->type == REDIS_REPLY_ERROR) return self->perform(self->supervisor_.readmit_refused(std::string(answer)));
        if (answer == "OK") {
            self->observer_.node_changed(self->index_, event_kind::node_readmitted,
                                         "epoch " + std::to_string(value_of(self->supervisor_.drawn())));
        }
        self->perform(self->supervisor_.readmit_answered(answer == "OK" || answer == "ALREADY"));
    });
}

// --- connection
// ---------------------------------------------------------------------------------------------------------------------

void node_link::run(const std::string& command, reply_handler on_reply) {
    if (!context_) return;
    auto* handler =
        new reply_handler(std::move(on_reply));  // NOLINT(cppcoreguidelines-owning-memory): given to hiredis
    const auto callback = [](redisAsyncContext*, void* reply, void* data) {
        const std::unique_ptr<reply_handler> mine(static_cast<reply_handler*>(data));
        (*mine)(static_cast<const redisReply*>(reply));
    };
    if (redisAsyncFormattedCommand(context_, callback, handler, command.data(), command.size()) != REDIS_OK)
        delete handler;
}

void node_link::ping() {
    handshake_deadline_ = std::chrono::steady_clock::now() + config_.node_dead_after;
    const auto sent_at = std::chrono::steady_clock::now();
    run(resp_command().arg("PING").finish(),
        [self = shared_from_this(), sent_at, generation = generation_](const redisReply* r) {
            if (!r || generation != self->generation_) return;
            self->handshake_deadline_ = monotonic_time::max();
            self->heard_at_ = std::chrono::steady_clock::now();
            self->latency_ = std::chrono::duration_cast<std::chrono::microseconds>(self->heard_at_ - sent_at);
        });
}

void node_link::drop(const std::string& why) {
    redisAsyncContext* c = std::exchange(context_, nullptr);
    // Answers every command in flight with null, at once or, from inside a reply, right after it.
    if (c) redisAsyncFree(c);
    lost(why);
}

void node_link::lost(const std::string& why) {
    if (context_) return;  // a newer connection stands already
    handshake_deadline_ = monotonic_time::max();
    ++generation_;
    const auto next = supervisor_.disconnected(why);
    if (!closed_) {
        perform(next);
    } else {
        publish_status(std::chrono::steady_clock::now());
    }
}

// --- commands
// -----------------------------------------------------------------------------------------------------------------------

reply_status node_link::send(command_kind kind, std::shared_ptr<reply_target> target, fencing_token token) {
    if (!context_) return reply_status::unreachable;
    if (!votes()) return reply_status::not_admitted;
    const bool gives_back = kind == command_kind::release || kind == command_kind::undo;
    // A node that owes answers gets nothing new but what gives leases back.
    if (!gives_back && !in_flight_.empty() && in_flight_.front()->overdue) return reply_status::timeout;
    if (unanswered_ >= config_.node_queue_max) return reply_status::unreachable;
    lanes_[static_cast<std::size_t>(kind)].push_back({std::move(target), token});
    ++unanswered_;
    if (!flush_posted_) {
        flush_posted_ = true;
        boost::asio::post(io_, [self = shared_from_this()] { self->flush(); });
    }
    return reply_status::ok;
}

void node_link::flush() {
    flush_posted_ = false;
    // Lanes go in the order of command_kind: releases first, so that who waits finds the lease free; undo last, behind
    // its own ACQUIRE.
    for (std::size_t k = 0; k < command_kinds; ++k) {
        std::vector<batch_item> lane = std::exchange(lanes_[k], {});
        for (std::size_t at = 0; at < lane.size(); at += batch_max) {
            auto b = std::make_unique<batch>();
            b->link = shared_from_this();
            b->generation = generation_;
            b->kind = static_cast<command_kind>(k);
            const auto first = lane.begin() + static_cast<std::ptrdiff_t>(at);
            const auto last = lane.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch_max, lane.size()));
            b->items.assign(std::make_move_iterator(first), std::make_move_iterator(last));
            submit(std::move(b), false);
        }
    }
}

void node_link::submit(std::unique_ptr<batch> b, bool with_text) {
    const std::string command = context_ ? format_batch(b->kind, b->items, run_id(), with_text) : std::string{};
    b->with_text = with_text;
    b->sent_at = std::chrono::steady_clock::now();
    const auto callback = [](redisAsyncContext*, void* reply, void* data) {
        const std::unique_ptr<batch> mine(static_cast<batch*>(data));
        const auto keep = mine->link;
        keep->answered(*mine, static_cast<const redisReply*>(reply));
    };
    in_flight_.push_back(b.get());
    if (!context_ ||
        redisAsyncFormattedCommand(context_, callback, b.get(), command.data(), command.size()) != REDIS_OK) {
        in_flight_.pop_back();
        unanswered_ -= b->items.size();
        for (batch_item& item : b->items)
            item.target->on_reply(index_, b->kind, item.token, {reply_status::unreachable, 0, milliseconds{0}});
        return;
    }
    (void)b.release();  // the callback owns it now
}

void node_link::answered(batch& b, const redisReply* reply) {
    // Answers come in the order of sending, so it is the front but where a resent batch or a broken connection mixes
    // them.
    const auto mine = std::find(in_flight_.begin(), in_flight_.end(), &b);
    if (mine != in_flight_.end()) in_flight_.erase(mine);

    if (reply && reply->type == REDIS_REPLY_ERROR && text_of(reply).starts_with("NOSCRIPT") && !b.with_text &&
        !b.overdue) {
        // Had no effect; the same connection and process, so this is no replay (R9).
        auto again = std::make_unique<batch>(std::move(b));
        return submit(std::move(again), true);
    }
    unanswered_ -= b.items.size();
    const bool whole = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 * b.items.size();
    if (whole) {
        heard_at_ = std::chrono::steady_clock::now();
        latency_ = std::chrono::duration_cast<std::chrono::microseconds>(heard_at_ - b.sent_at);
    }

    node_reply common;
    common.status = reply_status::broken;
    if (reply && !whole) {
        const bool uninit = text_of(reply).starts_with("UNINIT");
        common.status = uninit ? reply_status::not_admitted : reply_status::error;
        // Whatever made the node refuse will show when it is looked at again; until then it does not vote.
        if (votes() && b.generation == generation_) perform(supervisor_.found_not_admitted());
    }
    for (std::size_t i = 0; i < b.items.size(); ++i) {
        const node_reply r = whole ? parse_item(b.kind, reply->element + 3 * i) : common;
        b.items[i].target->on_reply(index_, b.kind, b.items[i].token, r);
    }
}

void node_link::tick(monotonic_time now) {
    publish_status(now);
    if (now >= handshake_deadline_) {
        handshake_deadline_ = monotonic_time::max();
        resolver_.cancel();
        return drop("does not answer");
    }
    const bool dead = !in_flight_.empty() && now - in_flight_.front()->sent_at >= config_.node_dead_after;
    if (dead) return drop("does not answer");
    const bool silent =
        in_flight_.empty() && handshake_deadline_ == monotonic_time::max() && now - heard_at_ >= silence_max;
    if (votes() && silent) ping();
    // Being told of a timeout may queue more commands, which leave after this turn: the list does not change meanwhile.
    for (batch* b : in_flight_) {
        if (b->overdue) continue;
        if (now - b->sent_at < config_.node_timeout) break;
        b->overdue = true;
        for (const batch_item& item : b->items) {
            item.target->on_reply(index_, b->kind, item.token, {reply_status::timeout, 0, milliseconds{0}});
        }
    }
}

void node_link::publish_status(monotonic_time now) {
    const std::lock_guard lock(status_mutex_);
    status_.state = supervisor_.state();
    status_.detail = supervisor_.detail();
    status_.run_id = supervisor_.facts().run_id;
    status_.admitted_epoch = supervisor_.admitted_epoch();
    status_.latency = latency_;
    status_.quarantine_left = supervisor_.quarantine_left(now);
}

node_status node_link::status() const {
    const std::lock_guard lock(status_mutex_);
    return status_;
}

}  // namespace lockcore::redis
