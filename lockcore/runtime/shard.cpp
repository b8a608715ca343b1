#include <runtime/shard.hpp>

#include <proto/lease_id.hpp>
#include <proto/validity.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace lockcore {
namespace asio = boost::asio;
namespace {

failure fail(errc code, std::string detail) {
    failure f;
    f.code = code;
    f.detail = std::move(detail);
    return f;
}

monotonic_time now() {
    return std::chrono::steady_clock::now();
}

/// How often overdue answers are looked for: a node's timeout is kept to within this.
milliseconds tick_of(const config& cfg) {
    return std::clamp(cfg.node_timeout / 8, milliseconds{2}, milliseconds{25});
}

}  // namespace

std::uint64_t shard::system_random::next() {
    return std::uint64_t{device()} << 32 | device();
}

shard::shard(const config& cfg, asio::io_context& io, lock_manager::dependencies deps, bool reports_nodes)
    : config_(cfg), io_(io), deps_(deps), reports_nodes_(reports_nodes), ticker_(io), highest_token_(buckets, 0) {
    jitter_.seed(static_cast<std::uint32_t>(random_.next()));
    for (std::size_t n = 0; n < cfg.nodes.size(); ++n) {
        links_.push_back(
            std::make_shared<redis::node_link>(io, static_cast<node_index>(n), cfg, deps.epochs, random_, *this));
    }
}

void shard::open() {
    open_ = true;
    for (const auto& link : links_)
        link->open();
    tick();
}

void shard::close() {
    open_ = false;
    ticker_.cancel();
    for (const auto& link : links_)
        link->close();
}

void shard::tick() {
    for (const auto& link : links_)
        link->tick(now());
    ticker_.expires_after(tick_of(config_));
    ticker_.async_wait([this](boost::system::error_code e) {
        if (!e && open_) tick();
    });
}

void shard::refuse_new_leases() {
    refusing_ = true;
    for (auto& [resource, queue] : queues_) {
        for (waiter* w : queue.waiting) {
            w->woken = true;
            w->wake.cancel();
        }
    }
}

// --- acquire
// ------------------------------------------------------------------------------------------------------------------------

asio::awaitable<result<lease>> shard::acquire(acquire_request request) {
    // A caller that went away is seen where it can be answered properly, not by an exception out of any wait.
    const bool threw = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);

    const bool others_wait = queues_.contains(request.resources.front().str());
    result<lease> outcome = fail(errc::shutting_down, "The gateway is shutting down and gives no new leases.");
    if (!refusing_ && (request.wait <= milliseconds{0} || !others_wait)) {
        outcome = co_await try_once(request);
    }
    if (!refusing_ && request.wait > milliseconds{0} &&
        (others_wait || (!outcome && outcome.error().code == errc::resource_locked))) {
        outcome = co_await wait_in_queue(request);
    }
    if (outcome) {
        emit(event_kind::lease_granted, outcome->claims.resources, outcome->claims.token, request.by, request.trace_id,
             {}, request.ttl);
    } else if (outcome.error().code == errc::resource_locked || outcome.error().code == errc::no_quorum) {
        emit(event_kind::lease_refused, request.resources, {}, request.by, request.trace_id,
             to_string(outcome.error().code), request.ttl);
    }
    co_await asio::this_coro::throw_if_cancelled(threw);
    co_return outcome;
}

asio::awaitable<result<lease>> shard::try_once(const acquire_request& request) {
    for (bool retried = false;; retried = true) {
        redis::lease_call call;
        call.resources = request.resources;
        call.attempt = nonce::from_bits(random_.next(), random_.next());
        call.ttl = request.ttl;
        call.holder = request.by.principal + '\n' + request.by.owner;
        call.hint = hint_for(request.resources);
        const auto attempt = std::make_shared<acquire_attempt>(std::move(call), links_);
        attempt->start();
        if (!attempt->done.fired()) co_await attempt->done.wait();

        const class acquire& machine = attempt->machine();
        remember(request.resources, machine.highest_heard());
        if (machine.outcome() == acquire::verdict::granted) {
            const auto left = std::chrono::floor<milliseconds>(validity(request.ttl, now() - attempt->started_at()));
            const bool unwanted =
                (co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none;
            if (!unwanted && left > milliseconds{0}) {
                lease_claims claims;
                claims.attempt = attempt->call().attempt;
                claims.token = machine.token();
                claims.resources = request.resources;
                claims.by = request.by;
                claims.granted_at =
                    std::chrono::floor<milliseconds>(std::chrono::system_clock::now());  // as the lease_id keeps it
                co_return make_lease(std::move(claims), request.ttl, left, 0, machine.stamps());
            }
            attempt->undo();
            if (unwanted) co_return fail(errc::cancelled, "The caller went away.");
            failure late = fail(errc::no_quorum, "The nodes took longer to answer than the lease would have lasted.");
            late.answers = attempt->answers();
            co_return late;
        }
        attempt->undo();
        if (attempt->overflowed() && !retried && co_await leave_used_up_epoch(request)) continue;
        if (machine.outcome() == acquire::verdict::locked) {
            failure locked = fail(errc::resource_locked, "Another lease holds the resource.");
            locked.remaining = machine.remaining();
            co_return locked;
        }
        failure none = fail(errc::no_quorum, "Too few Redis nodes answered to grant a lease.");
        none.answers = attempt->answers();
        co_return none;
    }
}

asio::awaitable<bool> shard::leave_used_up_epoch(const acquire_request& request) {
    auto drawn = co_await deps_.epochs.draw(links_.front()->name(), highest_epoch());
    if (!drawn) co_return false;
    // The next ACQUIRE's hint is one higher than this: the first token of the new epoch.
    remember(request.resources, fencing_token{value_of(drawn->value) * tokens_per_epoch});
    co_return true;
}

// --- waiting
// ------------------------------------------------------------------------------------------------------------------------

asio::awaitable<result<lease>> shard::wait_in_queue(acquire_request request) {
    if (waiters_ >= config_.waiters_max)
        co_return fail(errc::too_many_waiters, "As many callers wait as the configuration allows.");
    const monotonic_time until = now() + request.wait;
    const std::string resource = request.resources.front().str();

    /// A place in the queue; leaving it, however that comes, lets the next one contend.
    struct place {
        place(shard& s, const std::string& r) : owner(s), resource(r), self(s.io_) {
            owner.queues_[resource].waiting.push_back(&self);
            ++owner.waiters_;
        }
        ~place() {
            const auto found = owner.queues_.find(resource);
            const bool was_head = found->second.waiting.front() == &self;
            found->second.waiting.remove(&self);
            --owner.waiters_;
            if (found->second.waiting.empty()) {
                owner.queues_.erase(found);
            } else if (was_head) {
                owner.wake_head(resource);
            }
        }
        place(const place&) = delete;
        place& operator=(const place&) = delete;
        shard& owner;
        const std::string& resource;
        waiter self;
    };
    const place mine(*this, resource);
    waiter& me = const_cast<waiter&>(mine.self);
    wait_queue& queue = queues_.find(resource)->second;

    failure last = fail(errc::resource_locked, "Another lease holds the resource.");
    for (;;) {
        if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none) {
            co_return fail(errc::cancelled, "The caller went away.");
        }
        if (refusing_) co_return fail(errc::shutting_down, "The gateway is shutting down and gives no new leases.");
        if (now() >= until) {
            const auto at = std::find(queue.waiting.begin(), queue.waiting.end(), &me);
            last.queue_position = static_cast<std::size_t>(std::distance(queue.waiting.begin(), at)) + 1;
            if (last.remaining == milliseconds{0}) last.remaining = queue.retry_in;
            co_return last;
        }
        if (queue.waiting.front() != &me) {
            co_await sleep(me, until);
            continue;
        }
        me.woken = false;
        auto outcome = co_await try_once(request);
        if (outcome) co_return outcome;
        last = outcome.error();
        if (last.code != errc::resource_locked && last.code != errc::no_quorum) co_return last;
        queue.retry_in = last.remaining;
        const milliseconds pause =
            last.remaining > milliseconds{0} ? std::min(last.remaining + milliseconds{1}, look_again) : look_again;
        co_await sleep(me, std::min(until, now() + jittered(pause)));
    }
}

asio::awaitable<void> shard::sleep(waiter& w, monotonic_time until) {
    if (std::exchange(w.woken, false)) co_return;
    w.wake.expires_at(until);
    boost::system::error_code
        ignored;  // woken, or the time has come, or the caller went away: the loop looks at all three
    co_await w.wake.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    w.woken = false;
}

void shard::wake_head(const std::string& resource) {
    const auto found = queues_.find(resource);
    if (found == queues_.end()) return;
    waiter* head = found->second.waiting.front();
    head->woken = true;
    head->wake.cancel();
}

milliseconds shard::jittered(milliseconds at_most) {
    const auto half = std::max<std::int64_t>(at_most.count() / 2, 1);
    return milliseconds{half + std::uniform_int_distribution<std::int64_t>(0, half)(jitter_)};
}

// --- held leases
// --------------------------------------------------------------------------------------------------------------------

redis::lease_call shard::call_for(const lease_claims& claims) const {
    redis::lease_call call;
    call.resources = claims.resources;
    call.attempt = claims.attempt;
    call.holder = claims.by.principal + '\n' + claims.by.owner;
    call.renewals_max = config_.max_renewals;
    return call;
}

asio::awaitable<result<lease>> shard::renew(lease_claims claims, milliseconds ttl, std::string trace_id) {
    const auto held = std::chrono::system_clock::now() - claims.granted_at;
    if (held + ttl > config_.max_hold) {
        co_return fail(errc::renewals_exhausted, "The lease would be held longer than lease.max_hold_ms allows.");
    }
    redis::lease_call call = call_for(claims);
    call.ttl = ttl;
    const auto round = std::make_shared<round_attempt>(command_kind::renew, std::move(call), claims.token, links_);
    round->start();
    if (!round->done.fired()) co_await round->done.wait();

    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            const auto left = std::chrono::floor<milliseconds>(validity(ttl, now() - round->started_at()));
            if (left <= milliseconds{0})
                co_return fail(errc::lease_lost, "The nodes took longer to answer than the lease lasts.");
            emit(event_kind::lease_renewed, claims.resources, claims.token, claims.by, trace_id, {}, ttl);
            co_return make_lease(std::move(claims), ttl, left, round->machine().value(), round->machine().yes());
        }
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer holds this lease.");
        case majority_round::verdict::exhausted:
            co_return fail(errc::renewals_exhausted, "The lease was renewed as often as lease.max_renewals allows.");
        default:
            break;
    }
    failure none = fail(errc::no_quorum, "Too few Redis nodes answered; the lease may have been renewed on some.");
    none.answers = round->answers();
    co_return none;
}

asio::awaitable<result<lease>> shard::inspect(lease_claims claims) {
    const auto round = std::make_shared<round_attempt>(command_kind::inspect, call_for(claims), claims.token, links_);
    round->start();
    if (!round->done.fired()) co_await round->done.wait();

    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            const milliseconds on_nodes = round->machine().remaining();
            const auto left = std::chrono::floor<milliseconds>(validity(on_nodes, now() - round->started_at()));
            if (left <= milliseconds{0}) co_return fail(errc::lease_lost, "The lease is running out.");
            co_return make_lease(std::move(claims), on_nodes, left, round->machine().value(), round->machine().yes());
        }
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer holds this lease.");
        default:
            break;
    }
    failure none = fail(errc::no_quorum, "Too few Redis nodes answered.");
    none.answers = round->answers();
    co_return none;
}

asio::awaitable<result<release_outcome>> shard::release(lease_claims claims, std::string trace_id) {
    const auto round = std::make_shared<round_attempt>(command_kind::release, call_for(claims), claims.token, links_);
    round->start();
    if (!round->done.fired()) co_await round->done.wait();

    for (const resource_name& r : claims.resources)
        wake_head(r.str());
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            emit(event_kind::lease_released, claims.resources, claims.token, claims.by, trace_id, {}, {});
            release_outcome out;
            out.nodes_released = round->machine().yes();
            co_return out;
        }
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer held this lease.");
        default:
            break;
    }
    failure none = fail(errc::no_quorum, "Too few Redis nodes answered; where the lease was not released it runs out.");
    none.answers = round->answers();
    co_return none;
}

lease shard::make_lease(lease_claims claims, milliseconds ttl, milliseconds left, std::uint64_t renewals,
                        std::size_t granted) const {
    lease out;
    out.id = seal_lease_id(claims, deps_.mac);
    out.claims = std::move(claims);
    out.ttl = ttl;
    out.validity = left;
    out.expires_at = std::chrono::system_clock::now() + left;
    out.renewals_left =
        renewals >= config_.max_renewals ? 0 : config_.max_renewals - static_cast<std::uint32_t>(renewals);
    out.nodes_granted = granted;
    out.nodes = links_.size();
    return out;
}

fencing_token shard::hint_for(const std::vector<resource_name>& resources) const {
    std::uint64_t highest = 0;
    for (const resource_name& r : resources)
        highest = std::max(highest, highest_token_[r.bucket()]);
    return fencing_token{highest == 0 ? 0 : highest + 1};
}

void shard::remember(const std::vector<resource_name>& resources, fencing_token token) {
    for (const resource_name& r : resources)
        highest_token_[r.bucket()] = std::max(highest_token_[r.bucket()], value_of(token));
}

// --- nodes
// --------------------------------------------------------------------------------------------------------------------------

std::vector<node_status> shard::status() const {
    std::vector<node_status> out;
    out.reserve(links_.size());
    for (const auto& link : links_)
        out.push_back(link->status());
    return out;
}

std::string shard::same_server(node_index asking, const std::string& run_id) const {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        // The one that stands first keeps its vote.
        if (n != value_of(asking) && !run_id.empty() && links_[n]->run_id() == run_id && links_[n]->votes())
            return links_[n]->name();
    }
    return {};
}

epoch shard::highest_epoch() const {
    epoch highest{};
    for (const auto& link : links_)
        highest = std::max(highest, link->epoch_seen());
    return highest;
}

void shard::node_changed(node_index node, event_kind kind, const std::string& detail) {
    // Every shard sees a quarantine; draws and readmissions are each done by one.
    if (kind == event_kind::node_quarantined && !reports_nodes_) return;
    emit(kind, {}, {}, {}, {}, links_[value_of(node)]->name() + ": " + detail, {});
}

void shard::emit(event_kind kind, const std::vector<resource_name>& resources, fencing_token token, const holder& by,
                 const std::string& trace_id, std::string detail, milliseconds ttl) {
    event e;
    e.kind = kind;
    e.at = std::chrono::system_clock::now();
    e.resources = resources;
    e.token = token;
    e.by = by;
    e.trace_id = trace_id;
    e.detail = std::move(detail);
    e.ttl = ttl;
    deps_.events.on_event(std::move(e));
}

}  // namespace lockcore
