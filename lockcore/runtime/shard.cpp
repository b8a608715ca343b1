#include <runtime/shard.hpp>

#include <lockcore/types.hpp>
#include <redis/node_requests.hpp>
#include <redis/script_set.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

namespace lockcore {
namespace asio = boost::asio;
namespace {

step_time read_clocks() {
    return {std::chrono::steady_clock::now(), boot_clock::now(), std::chrono::system_clock::now()};
}

}  // namespace

std::uint64_t shard::system_random::next() {
    return std::uint64_t{device()} << 32 | device();
}

shard::shard(const config& cfg, asio::io_context& io, lock_manager::dependencies deps, bool leads,
             std::function<void(node_index)> on_state_change)
    : config_(cfg),
      io_(io),
      deps_(deps),
      on_state_change_(std::move(on_state_change)),
      core_({cfg, deps.mac, random_, leads}),
      ticker_(io),
      timer_(io) {
    for (std::size_t n = 0; n < cfg.nodes.size(); ++n) {
        const auto index = static_cast<node_index>(n);
        // `this` is safe in these handlers: after close() a connection calls none.
        redis::connection::event_handlers handlers;
        handlers.connected = [this, index] { deliver(input::connected{index, connections_[value_of(index)].number}); };
        handlers.lost = [this, index](const redis::connection::loss& what) {
            deliver(input::disconnected{index, connections_[value_of(index)].number, what.reason, what.refused});
        };
        connections_.push_back({std::make_shared<redis::connection>(io, cfg.nodes[n], std::move(handlers)), {}});
        auto on_lease_end = [this, index](const nonce& ended, std::string_view resource, bool revoked) {
            deliver(input::lease_ended{index, ended, std::string(resource), revoked});
        };
        subscriptions_.push_back(std::make_shared<redis::release_subscription>(io, cfg.nodes[n], core_.wake_mark(),
                                                                               std::move(on_lease_end)));
        status_.push_back(core_.status(index));
    }
}

shard::~shard() = default;

void shard::open() {
    open_ = true;
    deliver(input::start{});
    for (const auto& subscription : subscriptions_)
        subscription->start();
    tick({});
}

void shard::close() {
    deliver(input::stop{});
    open_ = false;
    ticker_.cancel();
    timer_.cancel();
    for (const auto& c : connections_)
        c.transport->close();
    for (const auto& subscription : subscriptions_)
        subscription->stop();
    for (std::size_t n = 0; n < connections_.size(); ++n)
        publish_status(static_cast<node_index>(n));
}

// --- steps

void shard::take_step(core_input&& what) {
    for (core_action& a : core_.step(std::move(what), read_clocks()))
        std::visit([this](auto& wanted) { perform(wanted); }, a);
}

void shard::deliver(core_input&& what) noexcept {
    if (stepping_) {
        delayed_.push_back(std::move(what));
        return;
    }
    stepping_ = true;
    take_step(std::move(what));
    while (!delayed_.empty()) {
        core_input next = std::move(delayed_.front());
        delayed_.pop_front();
        take_step(std::move(next));
    }
    stepping_ = false;
    waiter_count_.store(core_.waiters(), std::memory_order_relaxed);
    if (core_.needs_flush() && !std::exchange(flush_posted_, true)) {
        asio::post(io_, [this, alive = std::weak_ptr(alive_)] {
            if (alive.expired()) return;
            flush_posted_ = false;
            deliver(input::flush{});
        });
    }
    set_timer();
}

void shard::tick(boost::system::error_code e) {
    if (e || !open_) return;
    deliver(input::tick{});
    for (std::size_t n = 0; n < connections_.size(); ++n)
        publish_status(static_cast<node_index>(n));
    ticker_.expires_after(core::tick_length(config_));
    ticker_.async_wait([this](boost::system::error_code next) { tick(next); });
}

void shard::set_timer() {
    const std::optional<monotonic_time> next = core_.next_timer();
    if (!open_ || !next || *next >= timer_at_) return;  // a timer that is set earlier sets the next one
    timer_at_ = *next;
    timer_.expires_at(*next);
    timer_.async_wait([this](boost::system::error_code e) {
        if (e || !open_) return;
        timer_at_ = monotonic_time::max();
        deliver(input::timer{});
    });
}

// --- actions

void shard::perform(action::open_connection& a) {
    node_connection& c = connections_[value_of(a.node)];
    c.number = a.connection;
    c.transport->open();
}

void shard::perform(action::close_connection& a) {
    connections_[value_of(a.node)].transport->drop("closed");
}

void shard::perform(action::send_batch& a) {
    auto on_reply = [this, node = a.node, connection = a.connection, batch = a.batch,
                     kind = a.kind](const redis::reply* r) {
        if (!r) return;  // the connection is lost: input::disconnected follows
        redis::batch_reply parsed = redis::parse_batch(kind, *r);
        deliver(input::batch_answered{node, connection, batch, std::move(parsed.replies), std::move(parsed.error)});
    };
    connections_[value_of(a.node)].transport->send(redis::format_batch(a.kind, a.items, a.run_id, a.with_source),
                                                   std::move(on_reply));
}

void shard::perform(action::ask_node& a) {
    struct answers {
        node_request::any request;
        std::size_t wanted = 0;
        std::vector<redis::reply> received;
    };
    const std::vector<std::string> commands = redis::format_request(a.request);
    const auto collected = std::make_shared<answers>(answers{std::move(a.request), commands.size(), {}});
    for (const std::string& command : commands) {
        connections_[value_of(a.node)].transport->send(
            command, [this, collected, node = a.node, connection = a.connection](const redis::reply* r) {
                if (!r) return;
                collected->received.push_back(*r);
                if (collected->received.size() < collected->wanted) return;
                deliver(input::node_answered{node, connection,
                                             redis::parse_response(collected->request, collected->received)});
            });
    }
}

asio::awaitable<register_response> shard::query_register(register_request::any asked) {
    try {
        if (auto* find = std::get_if<register_request::find>(&asked)) {
            auto found = co_await deps_.epochs.find(std::move(find->node_name));
            if (!found) co_return found.error();
            co_return *found;
        }
        if (auto* draw = std::get_if<register_request::draw>(&asked)) {
            auto drawn = co_await deps_.epochs.draw(std::move(draw->request));
            if (!drawn) co_return drawn.error();
            co_return *drawn;
        }
        const auto noted =
            co_await deps_.epochs.note_unsynced(std::move(std::get<register_request::note_unsynced>(asked).node_name));
        if (!noted) co_return noted.error();
        co_return std::monostate{};
    } catch (const std::exception& thrown) {
        co_return make_failure(errc::no_quorum, thrown.what());
    }
}

void shard::perform(action::ask_register& a) {
    // A named coroutine without captures: its parameters live in its frame (GCC bug 107288, C++ Core Guidelines CP.51).
    auto run = [](shard* self, std::weak_ptr<const bool> alive, request_number request,
                  register_request::any asked) -> asio::awaitable<void> {
        register_response response = co_await self->query_register(std::move(asked));
        if (!alive.expired() && self->open_) self->deliver(input::register_answered{request, std::move(response)});
    };
    auto running = run(this, alive_, a.request, std::move(a.asked));
    asio::co_spawn(io_, std::move(running), asio::detached);
}

void shard::perform(action::answer& a) {
    auto found = pending_.extract(a.call);
    found.mapped()->outcome = std::move(a.result);
    found.mapped()->done.fire();
}

void shard::perform(action::record& a) {
    deps_.events.on_event(std::move(a.what));
}

void shard::perform(action::node_changed& a) {
    publish_status(a.node);
    if (open_) on_state_change_(a.node);
}

// --- the view of other threads

void shard::publish_status(node_index node) {
    const std::lock_guard lock(status_mutex_);
    status_[value_of(node)] = core_.status(node);
}

std::vector<node_status> shard::status() const {
    const std::lock_guard lock(status_mutex_);
    return status_;
}

node_status shard::status_of(node_index node) const {
    const std::lock_guard lock(status_mutex_);
    return status_[value_of(node)];
}

asio::awaitable<waiting_overview> shard::list_waiters(std::string prefix) {
    co_return core_.list_waiters(prefix);
}

}  // namespace lockcore
