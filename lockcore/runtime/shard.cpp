#include <runtime/shard.hpp>

#include <proto/lease_id.hpp>
#include <proto/validity.hpp>
#include <runtime/common.hpp>
#include <runtime/leak_scan.hpp>

#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <limits>
#include <set>

namespace lockcore {
namespace asio = boost::asio;
namespace {

live_lease make_live_lease(const survey& found, const resource_name& resource) {
    live_lease out;
    const lease_record& record = *found.lease();
    out.claims.attempt_id = record.attempt_id;
    out.claims.token = record.token;
    out.claims.holder = record.holder;
    out.claims.granted_at = record.granted_at;
    out.claims.resources = record.resources.empty() ? std::vector{resource} : record.resources;
    out.hold_count = static_cast<std::uint32_t>(record.holds.count());
    out.renewals = record.renewals;
    out.remaining = found.remaining();
    out.nodes_granted = found.nodes_holding();
    return out;
}

}  // namespace

std::uint64_t shard::system_random::next() {
    return std::uint64_t{device()} << 32 | device();
}

shard::shard(const config& cfg, asio::io_context& io, lock_manager::dependencies deps, bool reports_nodes,
             std::function<void(node_index)> on_state_change)
    : config_(cfg),
      io_(io),
      deps_(deps),
      reports_nodes_(reports_nodes),
      on_state_change_(std::move(on_state_change)),
      wake_mark_(nonce::from_bits(random_.next(), 0).str().substr(0, 16)),
      ticker_(io),
      repeater_(std::make_shared<round_repeater>(cfg.max_ttl)) {
    jitter_.seed(static_cast<std::uint32_t>(random_.next()));
    for (std::size_t n = 0; n < cfg.nodes.size(); ++n) {
        const auto index = static_cast<node_index>(n);
        const redis::admission::collaborators services{deps.epochs, random_, *this};
        links_.push_back(std::make_shared<redis::node_link>(io, index, cfg, services));
        auto on_lease_end = [this, index](const nonce& ended, std::string_view resource) {
            on_remote_release(index, ended, resource);
        };
        subscriptions_.push_back(
            std::make_shared<redis::release_subscription>(io, cfg.nodes[n], wake_mark_, std::move(on_lease_end)));
    }
}

void shard::open() {
    open_ = true;
    for (const auto& link : links_)
        link->open();
    for (const auto& subscription : subscriptions_)
        subscription->start();
    ticker_.expires_after(milliseconds{0});
    ticker_.async_wait([this](boost::system::error_code e) { tick(e); });
}

void shard::close() {
    open_ = false;
    ticker_.cancel();
    for (const auto& link : links_)
        link->close();
    for (const auto& subscription : subscriptions_)
        subscription->stop();
}

void shard::tick(boost::system::error_code e) {
    if (e || !open_) return;
    for (const auto& link : links_)
        link->tick(now());
    repeater_->tick(now());
    remove_expired_turns();
    std::erase_if(renewing_, [](const auto& entry) { return entry.second.expired(); });
    ticker_.expires_after(redis::node_link::tick_length(config_));
    ticker_.async_wait([this](boost::system::error_code next) { tick(next); });
}

// --- live leases

redis::lease_call shard::call_for(const lease_claims& claims) const {
    redis::lease_call call;
    call.resources = claims.resources;
    call.attempt_id = claims.attempt_id;
    call.hold = claims.hold;
    call.wake_mark = wake_mark_;
    call.renewals_max = config_.max_renewals;
    call.hold_max = config_.max_hold;
    return call;
}

asio::awaitable<std::shared_ptr<round_attempt>> shard::run_round(command_kind kind, redis::lease_call call,
                                                                 lease_claims claims) {
    const bool repeats = kind == command_kind::release;
    auto round = std::make_shared<round_attempt>(kind, std::move(call), std::move(claims), links_,
                                                 repeats ? repeater_ : nullptr);
    if (kind == command_kind::renew) renewing_.emplace(std::string(round->claims().attempt_id.str()), round);
    round->start();
    if (!round->done.has_fired()) co_await round->done.wait();
    co_return round;
}

asio::awaitable<result<lease>> shard::renew(lease_claims claims, milliseconds ttl, std::string trace_id, bool kept) {
    redis::lease_call call = call_for(claims);
    call.ttl = ttl;
    if (kept) {
        call.renewals_max = std::numeric_limits<std::uint32_t>::max();
        // The last renewal before the limit exceeds it by up to a ttl; keep() ends the lease at the limit.
        call.hold_max += ttl;
    }
    const auto round = co_await run_round(command_kind::renew, std::move(call), claims);
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            const validity_time valid_until = end_of_validity(ttl, round->started_at());
            if (remaining_until(valid_until) <= milliseconds{0})
                co_return make_failure(errc::lease_lost, "The nodes took longer to answer than the ttl of the lease.");
            emit(event_kind::lease_renewed, claims, trace_id, {}, ttl);
            if (const auto t = turns_.find(claims.resources.front().str()); t != turns_.end())
                t->second.hand_over_expires_at = now() + ttl;
            co_return make_lease(std::move(claims), ttl, valid_until, round->machine());
        }
        case majority_round::verdict::lost:
            co_return make_failure(errc::lease_lost, "No majority of the nodes holds this lease any more.");
        case majority_round::verdict::exhausted:
            co_return make_failure(
                errc::renewals_exhausted,
                "The lease was renewed as often, or held as long, as max_renewals and max_hold allow.");
        default:
            co_return make_no_quorum("Too few Redis nodes answered; the lease may have been renewed on some.",
                                     round->answers());
    }
}

asio::awaitable<result<lease>> shard::inspect(lease_claims claims) {
    const auto round = co_await run_round(command_kind::inspect, call_for(claims), claims);
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            const milliseconds on_nodes = round->machine().remaining();
            // The lease is live even if its validity is zero.
            const validity_time valid_until = end_of_validity(on_nodes, round->started_at());
            co_return make_lease(std::move(claims), round->machine().ttl(), valid_until, round->machine());
        }
        case majority_round::verdict::lost:
            co_return make_failure(errc::lease_lost, "No majority of the nodes holds this lease any more.");
        default:
            co_return make_no_quorum("Too few Redis nodes answered.", round->answers());
    }
}

void shard::notify_keepers(const nonce& ended) {
    ended_leases_.push_back(ended);
    if (ended_leases_.size() > ended_leases_max) ended_leases_.pop_front();
    const auto [first, last] = keepers_.equal_range(std::string(ended.str()));
    for (auto k = first; k != last; ++k)
        wake(*k->second);
}

asio::awaitable<result<keep_step>> shard::keep(kept_lease kept, std::string trace_id) {
    const bool throws_if_cancelled = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    const lease_claims claims = kept.current.claims;
    const milliseconds ttl = kept.current.ttl;

    sleeper keeper(io_);
    const validity_time hold_until = kept.hold_until;
    const auto entry = keepers_.emplace(std::string(claims.attempt_id.str()), &keeper);
    keeper.woken = std::ranges::find(ended_leases_, claims.attempt_id) != ended_leases_.end();
    // Timer and validity use different clocks, so the validity is tested after each wait.
    const auto limit_delay = [&kept, hold_until](milliseconds delay) {
        const validity_time end = std::min(kept.current.valid_until, hold_until);
        return now() + std::min<std::chrono::nanoseconds>(delay, end - boot_clock::now());
    };
    monotonic_time renew_at = limit_delay(ttl / 3);
    result<keep_step> outcome =
        make_failure(errc::cancelled, "The caller cancelled the request; the lease is still live.");
    const auto finish = [&](keep_step::outcome result, std::string reason) {
        outcome = keep_step{result, kept, std::move(reason)};
    };
    for (;;) {
        keeper.until = renew_at;
        co_await sleep(keeper);
        if (co_await is_cancelled()) break;
        if (boot_clock::now() >= kept.current.valid_until) {
            finish(keep_step::outcome::lost, "It expired: it could not be renewed in time.");
            break;
        }
        if (boot_clock::now() >= hold_until) {
            finish(keep_step::outcome::exhausted, "It was held for as long as max_hold_ms allows.");
            break;
        }
        if (std::exchange(keeper.woken, false)) {
            const auto live = co_await inspect(claims);
            if (live || live.error().code == errc::no_quorum) continue;
            finish(keep_step::outcome::lost, "It was revoked or released.");
            break;
        }
        const auto renewed = co_await renew(claims, ttl, trace_id, true);
        if (renewed) {
            kept = kept_lease(*renewed);
            kept.hold_until = hold_until;
            finish(keep_step::outcome::renewed, {});
            break;
        }
        if (renewed.error().code == errc::no_quorum) {
            renew_at = limit_delay(std::clamp(ttl / 10, milliseconds{20}, milliseconds{1'000}));
            continue;
        }
        const bool lost = renewed.error().code == errc::lease_lost;
        finish(lost ? keep_step::outcome::lost : keep_step::outcome::exhausted, renewed.error().detail);
        break;
    }
    keepers_.erase(entry);
    co_await asio::this_coro::throw_if_cancelled(throws_if_cancelled);
    co_return outcome;
}

// --- reading leases

asio::awaitable<result<std::optional<live_lease>>> shard::find_lease(resource_name resource) {
    const auto attempt = std::make_shared<survey_attempt>(resource, links_);
    attempt->start();
    if (!attempt->done.has_fired()) co_await attempt->done.wait();
    switch (attempt->machine().outcome()) {
        case survey::verdict::found:
            co_return std::optional(make_live_lease(attempt->machine(), resource));
        case survey::verdict::none:
            co_return std::optional<live_lease>{};
        case survey::verdict::occupied:
            co_return occupied_by_another_value(attempt->answers(), attempt->machine().occupied(), "");
        default:
            co_return make_no_quorum("Too few Redis nodes answered.", attempt->answers());
    }
}

failure shard::occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                         const std::string& bound) {
    failure f = make_failure(errc::resource_locked,
                             "A value that is no lease of this version occupies the resource's key on " + bound +
                                 std::to_string(nodes.count()) + " of " + std::to_string(answers.size()) + " nodes.");
    for (std::size_t n = 0; n < answers.size(); ++n) {
        if (nodes.test(n)) answers[n].answer = "occupied by another value";
    }
    f.answers = std::move(answers);
    return f;
}

asio::awaitable<result<lease_page>> shard::list_leases(lease_query query) {
    if (listing_) co_return make_failure(errc::busy, "Another listing of the leases is in progress.");
    listing_ = true;
    struct done {
        bool& flag;
        ~done() { flag = false; }
    } const reset{listing_};

    // Every majority includes one of so many nodes. `names` has the first `limit` + 1 names after query.after.
    const std::size_t enough = links_.size() - majority_of(links_.size()) + 1;
    std::set<std::string> names;
    std::size_t scanned = 0;
    for (const auto& link : links_) {
        if (scanned == enough) break;
        std::string cursor = "0";
        do {
            const auto listing = std::make_shared<list_attempt>(cursor, "fg:lease:" + query.prefix + "*", link);
            listing->start();
            if (!listing->done.has_fired()) co_await listing->done.wait();
            cursor.clear();
            if (!listing->part() || now() >= query.until) break;
            cursor = listing->part()->cursor;
            for (const auto& name : listing->part()->names) {
                if (name.text <= query.after) continue;
                names.insert(name.text);
                if (names.size() > query.limit + 1) names.erase(std::prev(names.end()));
            }
        } while (cursor != "0" && !cursor.empty());
        if (!cursor.empty()) ++scanned;
    }
    if (scanned < enough) co_return make_no_quorum("Too few Redis nodes listed their keys in time.", {});

    lease_page page;
    if (names.size() > query.limit) {
        names.erase(std::prev(names.end()));
        page.next = *names.rbegin();
    }
    std::vector<std::shared_ptr<survey_attempt>> surveys;
    for (const std::string& name : names) {
        auto resource = resource_name::parse(name);
        if (!resource) continue;  // not a key of lockcore
        surveys.push_back(std::make_shared<survey_attempt>(std::move(*resource), links_));
        surveys.back()->start();
    }
    for (const auto& attempt : surveys) {
        if (!attempt->done.has_fired()) co_await attempt->done.wait();
        const resource_name& resource = attempt->call().resources.front();
        if (attempt->machine().outcome() == survey::verdict::found) {
            page.leases.push_back(make_live_lease(attempt->machine(), resource));
            page.leases.back().claims.resources = {resource};
        }
    }
    co_return page;
}

asio::awaitable<result<leak_report>> shard::find_leaks() {
    if (finding_leaks_) co_return make_failure(errc::busy, "Another search for leaked leases is in progress.");
    finding_leaks_ = true;
    struct done {
        bool& flag;
        ~done() { flag = false; }
    } const reset{finding_leaks_};
    leak_scan scan(io_, links_);
    co_return co_await scan.run();
}

lease shard::make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                        const majority_round& round) const {
    lease out;
    out.id = sign_lease_id(claims, deps_.mac);
    out.claims = std::move(claims);
    out.hold_count = std::max(static_cast<std::uint32_t>(round.holds()), 1U);
    out.ttl = ttl;
    set_validity(out, valid_until);
    const std::uint64_t renewals = round.value();
    out.renewals_left =
        renewals >= config_.max_renewals ? 0 : config_.max_renewals - static_cast<std::uint32_t>(renewals);
    out.nodes_granted = round.yes();
    out.nodes = links_.size();
    return out;
}

// --- nodes

std::vector<node_status> shard::status() const {
    std::vector<node_status> out;
    out.reserve(links_.size());
    for (const auto& link : links_)
        out.push_back(link->status());
    return out;
}

std::string shard::find_duplicate(node_index node, const std::string& run_id) const {
    for (std::size_t n = 0; n < links_.size(); ++n) {
        // Of two nodes that are one server, the one that already votes stays a voter.
        if (n != value_of(node) && !run_id.empty() && links_[n]->run_id() == run_id && links_[n]->is_voting())
            return links_[n]->name();
    }
    return {};
}

epoch shard::highest_epoch() const {
    epoch highest{};
    for (const auto& link : links_)
        highest = std::max(highest, link->observed_epoch());
    return highest;
}

void shard::on_node_event(node_index node, event_kind kind, const std::string& detail) {
    // Every shard sees a quarantine, so one of them reports it. A draw or a readmission is done by one shard only.
    if (kind == event_kind::node_quarantined && !reports_nodes_) return;
    emit(kind, {}, {}, links_[value_of(node)]->name() + ": " + detail, {});
}

event shard::make_event(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                        milliseconds ttl) const {
    event e;
    e.kind = kind;
    e.at = std::chrono::system_clock::now();
    e.resources = claims.resources;
    e.token = claims.token;
    e.actor = claims.holder;
    e.trace_id = trace_id;
    e.detail = std::move(detail);
    e.ttl = ttl;
    e.granted_at = claims.granted_at;
    return e;
}

void shard::emit(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                 milliseconds ttl) {
    deps_.events.on_event(make_event(kind, claims, trace_id, std::move(detail), ttl));
}

asio::awaitable<waiting_overview> shard::list_waiters(std::string prefix) {
    waiting_overview out;
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (const auto& [ticket, caller] : waiters_) {
        bool counts = false;
        for (const resource_name& name : caller->request.resources) {
            if (!name.str().starts_with(prefix)) continue;
            ++by_name[name.str()];
            counts = true;
        }
        if (counts) ++out.waiters;
    }
    out.resources.reserve(by_name.size());
    for (const auto& [name, waiters] : by_name)
        out.resources.push_back({std::string(name), waiters});
    co_return out;
}

}  // namespace lockcore
