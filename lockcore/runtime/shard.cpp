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

live_lease seen_by_all(const survey& found, const resource_name& resource) {
    live_lease out;
    const lease_record& record = *found.lease();
    out.claims.attempt = record.attempt;
    out.claims.token = record.token;
    out.claims.by = record.by;
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
             std::function<void(node_index)> on_state)
    : config_(cfg),
      io_(io),
      deps_(deps),
      reports_nodes_(reports_nodes),
      on_state_(std::move(on_state)),
      mark_(nonce::from_bits(random_.next(), 0).str().substr(0, 16)),
      ticker_(io),
      repeater_(std::make_shared<round_repeater>(cfg.max_ttl)) {
    chance_.seed(static_cast<std::uint32_t>(random_.next()));
    for (std::size_t n = 0; n < cfg.nodes.size(); ++n) {
        const auto index = static_cast<node_index>(n);
        const redis::admission::collaborators with{deps.epochs, random_, *this};
        links_.push_back(std::make_shared<redis::node_link>(io, index, cfg, with));
        auto on_end = [this, index](const nonce& ended, std::string_view resource) {
            ended_elsewhere(index, ended, resource);
        };
        feeds_.push_back(std::make_shared<redis::wake_feed>(io, cfg.nodes[n], mark_, std::move(on_end)));
    }
}

void shard::open() {
    open_ = true;
    for (const auto& link : links_)
        link->open();
    for (const auto& feed : feeds_)
        feed->start();
    ticker_.expires_after(milliseconds{0});
    ticker_.async_wait([this](boost::system::error_code e) { tick(e); });
}

void shard::close() {
    open_ = false;
    ticker_.cancel();
    for (const auto& link : links_)
        link->close();
    for (const auto& feed : feeds_)
        feed->stop();
}

void shard::tick(boost::system::error_code e) {
    if (e || !open_) return;
    for (const auto& link : links_)
        link->tick(now());
    repeater_->tick(now());
    forget_turns();
    std::erase_if(renewing_, [](const auto& entry) { return entry.second.expired(); });
    ticker_.expires_after(redis::node_link::tick_length(config_));
    ticker_.async_wait([this](boost::system::error_code next) { tick(next); });
}

// --- leases given

redis::lease_call shard::call_for(const lease_claims& claims) const {
    redis::lease_call call;
    call.resources = claims.resources;
    call.attempt = claims.attempt;
    call.hold = claims.hold;
    call.mark = mark_;
    call.renewals_max = config_.max_renewals;
    call.hold_max = config_.max_hold;
    return call;
}

asio::awaitable<std::shared_ptr<round_attempt>> shard::run_round(command_kind kind, redis::lease_call call,
                                                                 lease_claims claims) {
    const bool repeated = kind == command_kind::release;
    auto round = std::make_shared<round_attempt>(kind, std::move(call), std::move(claims), links_,
                                                 repeated ? repeater_ : nullptr);
    if (kind == command_kind::renew) renewing_.emplace(std::string(round->claims().attempt.str()), round);
    round->start();
    if (!round->done.fired()) co_await round->done.wait();
    co_return round;
}

asio::awaitable<result<lease>> shard::renew(lease_claims claims, milliseconds ttl, std::string trace_id, bool kept) {
    redis::lease_call call = call_for(claims);
    call.ttl = ttl;
    if (kept) {
        call.renewals_max = std::numeric_limits<std::uint32_t>::max();
        // The last renewal before the bound reaches behind it; keep() ends the lease at the bound.
        call.hold_max += ttl;
    }
    const auto round = co_await run_round(command_kind::renew, std::move(call), claims);
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            const validity_time valid_until = end_of_validity(ttl, round->started_at());
            if (left_until(valid_until) <= milliseconds{0})
                co_return fail(errc::lease_lost, "The nodes took longer to answer than the lease lasts.");
            emit(event_kind::lease_renewed, claims, trace_id, {}, ttl);
            if (const auto t = turns_.find(claims.resources.front().str()); t != turns_.end())
                t->second.forget_handed = now() + ttl;
            co_return make_lease(std::move(claims), ttl, valid_until, round->machine());
        }
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer holds this lease.");
        case majority_round::verdict::exhausted:
            co_return fail(errc::renewals_exhausted,
                           "The lease was renewed as often, or held as long, as max_renewals and max_hold allow.");
        default:
            co_return no_quorum("Too few Redis nodes answered; the lease may have been renewed on some.",
                                round->answers());
    }
}

asio::awaitable<result<lease>> shard::inspect(lease_claims claims) {
    const auto round = co_await run_round(command_kind::inspect, call_for(claims), claims);
    switch (round->machine().outcome()) {
        case majority_round::verdict::yes: {
            const milliseconds on_nodes = round->machine().remaining();
            // Not lost yet, even where nothing of it is certain any more.
            const validity_time valid_until = end_of_validity(on_nodes, round->started_at());
            co_return make_lease(std::move(claims), round->machine().ttl(), valid_until, round->machine());
        }
        case majority_round::verdict::lost:
            co_return fail(errc::lease_lost, "A majority of the nodes no longer holds this lease.");
        default:
            co_return no_quorum("Too few Redis nodes answered.", round->answers());
    }
}

void shard::tell_keepers(const nonce& ended) {
    ends_.push_back(ended);
    if (ends_.size() > ends_max) ends_.pop_front();
    const auto [first, last] = keepers_.equal_range(std::string(ended.str()));
    for (auto k = first; k != last; ++k)
        wake(*k->second);
}

asio::awaitable<result<keep_step>> shard::keep(kept_lease kept, std::string trace_id) {
    const bool threw = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    const lease_claims claims = kept.current.claims;
    const milliseconds ttl = kept.current.ttl;

    sleeper me(io_);
    const validity_time hold_until = kept.hold_until;
    const auto place = keepers_.emplace(std::string(claims.attempt.str()), &me);
    me.woken = std::ranges::find(ends_, claims.attempt) != ends_.end();
    // The timer runs by another clock than validity: its end is looked at whenever the wait is over.
    const auto in_time = [&kept, hold_until](milliseconds pause) {
        const validity_time end = std::min(kept.current.valid_until, hold_until);
        return now() + std::min<std::chrono::nanoseconds>(pause, end - boot_clock::now());
    };
    monotonic_time renew_at = in_time(ttl / 3);
    result<keep_step> outcome = fail(errc::cancelled, "The caller went away; the lease stands.");
    const auto ends = [&](keep_step::outcome what, std::string why) {
        outcome = keep_step{what, kept, std::move(why)};
    };
    for (;;) {
        me.until = renew_at;
        co_await sleep(me);
        if (co_await caller_gone()) break;
        if (boot_clock::now() >= kept.current.valid_until) {
            ends(keep_step::outcome::lost, "It ran out: it could not be renewed in time.");
            break;
        }
        if (boot_clock::now() >= hold_until) {
            ends(keep_step::outcome::exhausted, "It was held as long as its max_hold_ms allows.");
            break;
        }
        if (std::exchange(me.woken, false)) {
            const auto seen = co_await inspect(claims);
            if (seen || seen.error().code == errc::no_quorum) continue;
            ends(keep_step::outcome::lost, "It was taken away or released.");
            break;
        }
        const auto renewed = co_await renew(claims, ttl, trace_id, true);
        if (renewed) {
            kept = kept_lease(*renewed);
            kept.hold_until = hold_until;
            ends(keep_step::outcome::renewed, {});
            break;
        }
        if (renewed.error().code == errc::no_quorum) {
            renew_at = in_time(std::clamp(ttl / 10, milliseconds{20}, milliseconds{1'000}));
            continue;
        }
        const bool lost = renewed.error().code == errc::lease_lost;
        ends(lost ? keep_step::outcome::lost : keep_step::outcome::exhausted, renewed.error().detail);
        break;
    }
    keepers_.erase(place);
    co_await asio::this_coro::throw_if_cancelled(threw);
    co_return outcome;
}

// --- leases seen

asio::awaitable<result<std::optional<live_lease>>> shard::look(resource_name resource) {
    const auto asked = std::make_shared<survey_attempt>(resource, links_);
    asked->start();
    if (!asked->done.fired()) co_await asked->done.wait();
    switch (asked->machine().outcome()) {
        case survey::verdict::found:
            co_return std::optional(seen_by_all(asked->machine(), resource));
        case survey::verdict::none:
            co_return std::optional<live_lease>{};
        case survey::verdict::occupied:
            co_return occupied_by_another_value(asked->answers(), asked->machine().occupied(), "");
        default:
            co_return no_quorum("Too few Redis nodes answered.", asked->answers());
    }
}

failure shard::occupied_by_another_value(std::vector<node_answer> answers, const node_set& nodes,
                                         const std::string& bound) {
    failure f = fail(errc::resource_locked, "A value that is no lease of this version occupies the resource's key on " +
                                                bound + std::to_string(nodes.count()) + " of " +
                                                std::to_string(answers.size()) + " nodes.");
    for (std::size_t n = 0; n < answers.size(); ++n) {
        if (nodes.test(n)) answers[n].answer = "occupied by another value";
    }
    f.answers = std::move(answers);
    return f;
}

asio::awaitable<result<lease_page>> shard::list(lease_query query) {
    if (listing_) co_return fail(errc::busy, "Another listing of the leases is under way.");
    listing_ = true;
    struct done {
        bool& flag;
        ~done() { flag = false; }
    } const reset{listing_};

    // So many nodes share one with every majority. The names behind `after`, the lowest `limit` of them and one more.
    const std::size_t enough = links_.size() - majority_of(links_.size()) + 1;
    std::set<std::string> names;
    std::size_t walked = 0;
    for (const auto& link : links_) {
        if (walked == enough) break;
        std::string cursor = "0";
        do {
            const auto asked = std::make_shared<list_attempt>(cursor, "fg:lease:" + query.prefix + "*", link);
            asked->start();
            if (!asked->done.fired()) co_await asked->done.wait();
            cursor.clear();
            if (!asked->part() || now() >= query.until) break;
            cursor = asked->part()->cursor;
            for (const auto& name : asked->part()->names) {
                if (name.text <= query.after) continue;
                names.insert(name.text);
                if (names.size() > query.limit + 1) names.erase(std::prev(names.end()));
            }
        } while (cursor != "0" && !cursor.empty());
        if (!cursor.empty()) ++walked;
    }
    if (walked < enough) co_return no_quorum("Too few Redis nodes let their keys be listed in time.", {});

    lease_page page;
    if (names.size() > query.limit) {
        names.erase(std::prev(names.end()));
        page.next = *names.rbegin();
    }
    std::vector<std::shared_ptr<survey_attempt>> asked;
    for (const std::string& name : names) {
        auto resource = resource_name::parse(name);
        if (!resource) continue;  // somebody else's key
        asked.push_back(std::make_shared<survey_attempt>(std::move(*resource), links_));
        asked.back()->start();
    }
    for (const auto& one : asked) {
        if (!one->done.fired()) co_await one->done.wait();
        const resource_name& resource = one->call().resources.front();
        if (one->machine().outcome() == survey::verdict::found) {
            page.leases.push_back(seen_by_all(one->machine(), resource));
            page.leases.back().claims.resources = {resource};
        }
    }
    co_return page;
}

asio::awaitable<result<leak_report>> shard::find_leaks() {
    if (finding_leaks_) co_return fail(errc::busy, "Another search for leaks is under way.");
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
    out.id = seal_lease_id(claims, deps_.mac);
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
    emit(kind, {}, {}, links_[value_of(node)]->name() + ": " + detail, {});
}

event shard::make_event(event_kind kind, const lease_claims& claims, const std::string& trace_id, std::string detail,
                        milliseconds ttl) const {
    event e;
    e.kind = kind;
    e.at = std::chrono::system_clock::now();
    e.resources = claims.resources;
    e.token = claims.token;
    e.by = claims.by;
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

asio::awaitable<waiting_overview> shard::waiting(std::string prefix) {
    waiting_overview out;
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (const auto& [ticket, who] : waiters_) {
        bool counts = false;
        for (const resource_name& name : who->request.resources) {
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
