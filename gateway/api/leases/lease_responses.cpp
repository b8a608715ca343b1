#include <gateway/api/leases/lease_responses.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_lifecycle.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/limits/caller.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace fencegate::api {
namespace {

void write_list(http::object_writer& out, std::string& text, std::string_view key,
                const std::vector<lockcore::resource_name>& names) {
    out.key(key);
    text += '[';
    for (const auto& name : names) {
        if (&name != names.data()) text += ',';
        http::append_json_string(text, name.str());
    }
    text += ']';
}

/// Returns the names that `resource` or `resources` has: those of a lease with shared resources only are there too.
const std::vector<lockcore::resource_name>& main_names(const lockcore::lease_claims& claims) {
    return claims.resources.empty() ? claims.shared : claims.resources;
}

void write_identity(http::object_writer& out, std::string& text, const lockcore::lease_claims& claims,
                    std::string_view lease_id) {
    out.text("lease_id", lease_id);
    const auto& names = main_names(claims);
    if (names.size() == 1) {
        out.text("resource", names.front().str());
    } else {
        write_list(out, text, "resources", names);
    }
    if (claims.resources.empty()) {
        out.text("mode", "shared");
    } else if (!claims.shared.empty()) {
        write_list(out, text, "shared", claims.shared);
    }
    out.number("fencing_token", lockcore::value_of(claims.token));
}

/// Further members of an answer.
struct lease_extras {
    std::optional<lockcore::milliseconds> max_hold{};
    std::optional<lockcore::milliseconds> hold_left{};
    std::string_view reason{};  ///< Empty: none.
};

std::string render_lease_object(const lockcore::lease& l, const lease_times& times, const lease_extras& extras) {
    std::string text;
    text.reserve(384 + l.id.size());
    http::object_writer out(text);
    write_identity(out, text, l.claims, l.id);
    out.text_or_null("owner", l.claims.holder.owner).number("hold_count", l.hold_count);
    out.number("ttl_ms", l.ttl.count()).number("validity_ms", times.left.count());
    out.number("served_ms", times.served.count());
    out.text("expires_at", runtime::to_rfc3339(l.expires_at)).number("renewals_left", l.renewals_left);
    out.key("quorum");
    http::object_writer(text).number("granted", l.nodes_granted).number("nodes", l.nodes).end();
    if (extras.max_hold) out.number("max_hold_ms", extras.max_hold->count());
    if (extras.hold_left) out.number("hold_left_ms", extras.hold_left->count());
    if (!extras.reason.empty()) out.text("reason", extras.reason);
    out.end();
    return text;
}

std::string render_event(std::string_view name, std::string_view data) {
    std::string text = "event: ";
    text += name;
    text += "\ndata: ";
    text += data;
    text += "\n\n";
    return text;
}

}  // namespace

std::string render_lease(const lockcore::lease& l, const lease_times& times) {
    return render_lease_object(l, times, {});
}

http::response lease_response(lockcore::lease l, unsigned status, std::optional<std::chrono::milliseconds> max_hold) {
    http::response out = http::json_response({}, status);
    http::expiring_text& body = out.expiring_body.emplace();
    body.valid_until = l.valid_until;
    body.render = [l = std::move(l), max_hold](std::chrono::milliseconds left, std::chrono::milliseconds served) {
        lease_extras extras;
        extras.max_hold = max_hold;
        return render_lease_object(l, {left, served}, extras);
    };
    return out;
}

std::string render_lease_event(std::string_view name, const lockcore::kept_lease& kept, const lease_times& times,
                               std::chrono::milliseconds max_hold, std::string_view reason) {
    const auto left = std::chrono::floor<lockcore::milliseconds>(kept.hold_until - lockcore::boot_clock::now());
    lease_extras extras;
    extras.max_hold = max_hold;
    extras.hold_left = std::clamp(left, lockcore::milliseconds{0}, max_hold);
    extras.reason = reason;
    return render_event(name, render_lease_object(kept.current, times, extras));
}

std::string render_watch_event(std::string_view name, const lockcore::lease& watched, const lease_times& times,
                               std::string_view reason) {
    lease_extras extras;
    extras.reason = reason;
    return render_event(name, render_lease_object(watched, times, extras));
}

std::string render_live_lease(const lockcore::live_lease& l, const lockcore::resource_name& resource,
                              std::size_t nodes) {
    std::string text;
    http::object_writer item(text);
    item.text("resource", resource.str());
    const auto& shared = l.claims.shared;
    if (std::ranges::find(shared, resource) != shared.end())
        item.text("mode", "shared").text("grant", audit::grant_of(l.claims.attempt_id));
    if (l.claims.resources.size() + shared.size() > 1) {
        write_list(item, text, "resources", main_names(l.claims));
        if (!l.claims.resources.empty() && !shared.empty()) write_list(item, text, "shared", shared);
    }
    item.number("fencing_token", lockcore::value_of(l.claims.token));
    item.text_or_null("owner", l.claims.holder.owner).text_or_null("principal", l.claims.holder.principal);
    item.number("hold_count", l.hold_count).number("renewals", l.renewals);
    item.text("granted_at", runtime::to_rfc3339(l.claims.granted_at)).number("remaining_ms", l.remaining.count());
    item.key("quorum");
    http::object_writer(text).number("granted", l.nodes_granted).number("nodes", nodes).end();
    item.end();
    return text;
}

void append_live_leases(std::string& text, const std::vector<lockcore::live_lease>& leases,
                        const lockcore::resource_name* resource, std::size_t nodes) {
    text += '[';
    for (const lockcore::live_lease& l : leases) {
        if (&l != leases.data()) text += ',';
        text += render_live_lease(l, resource != nullptr ? *resource : lockcore::first_resource(l.claims), nodes);
    }
    text += ']';
}

std::string render_live_leases(const lockcore::lease_page& page, const metrics::waiting_watch::finding& waiting,
                               std::size_t nodes) {
    std::string text;
    text.reserve(64 + 320 * page.leases.size());
    http::object_writer out(text);
    out.key("items");
    append_live_leases(text, page.leases, nullptr, nodes);
    out.text_or_null("next_cursor", page.next).number("waiters", waiting.callers.waiters).key("waiting");
    text += '[';
    for (const lockcore::waiting_count& entry : waiting.callers.resources) {
        if (&entry != waiting.callers.resources.data()) text += ',';
        http::object_writer(text).text("resource", entry.resource).number("waiters", entry.waiters).end();
    }
    text += ']';
    out.key("waiting_gateways");
    text += '[';
    for (const auto& each : waiting.gateways) {
        if (&each != waiting.gateways.data()) text += ',';
        http::object_writer(text).text("gateway", each.first).number("waiters", each.second).end();
    }
    text += ']';
    out.boolean("waiting_complete", waiting.complete);
    out.end();
    return text;
}

std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left, seal_result seal) {
    std::string text;
    http::object_writer out(text);
    write_identity(out, text, claims, lease_id);
    out.number("hold_count", holds_left);
    if (seal == seal_result::not_sealed) out.boolean("sealed", false);
    out.end();
    return text;
}

std::string location_of(std::string_view lease_id) {
    return "/v1/leases/" + runtime::percent_encode(lease_id);
}

namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::milliseconds;
using watch_outcome = lockcore::watch_step::outcome;

/// The shortest time after which a connection without acknowledgements is closed: TCP repeats a lost packet by then.
constexpr std::chrono::milliseconds unacknowledged_min{1'000};

/// Returns an event that ends a lease.
std::string render_end(std::string_view name, lockcore::kept_lease kept, std::chrono::milliseconds max_hold,
                       const http::body_stream& out, std::string_view reason) {
    kept.current.expires_at = std::chrono::system_clock::now();
    return render_lease_event(name, kept, {std::chrono::milliseconds{0}, out.served()}, max_hold, reason);
}

/// Sends an event with the current state of the lease, unless its validity ends before the event is sent.
awaitable<http::body_stream::outcome> send_lease(http::body_stream& out, std::string_view name,
                                                 const lockcore::kept_lease& kept, std::chrono::milliseconds max_hold) {
    http::expiring_text event;
    event.valid_until = kept.current.valid_until;
    event.render = [name, &kept, max_hold](std::chrono::milliseconds left, std::chrono::milliseconds served) {
        return render_lease_event(name, kept, {left, served}, max_hold, {});
    };
    co_return co_await out.send_expiring(event);
}

/// Renews the lease as long as its caller acknowledges the events, and releases it at the end.
awaitable<void> keep(lockcore::lock_manager& locks, lockcore::kept_lease kept, std::chrono::milliseconds max_hold,
                     std::string origin, http::body_stream& out) {
    // A machine that loses its power or its network says nothing: its lease is renewed only while it acknowledges.
    out.limit_unacknowledged(std::max(kept.current.ttl, unacknowledged_min));
    std::string_view end_event = "released";
    std::string end_reason;
    using sent = http::body_stream::outcome;
    sent latest = co_await send_lease(out, "granted", kept, max_hold);
    while (latest != sent::caller_gone) {
        if (latest == sent::expired) {
            co_await out.send(render_end("lost", kept, max_hold, out, "It expired before the event could be sent."));
            break;
        }
        const bool acknowledged = co_await out.wait_acknowledged(kept.current.valid_until);
        if (!acknowledged) {
            end_event = "lost";
            end_reason = "It expired: the caller did not acknowledge the last event.";
            break;
        }
        auto renewal = co_await locks.keep(kept, origin);
        if (!renewal) {
            // Or the caller hung up, and reads nothing any more.
            end_reason = "The gateway is stopping, or no longer accepts the credential.";
            break;
        }
        kept = std::move(renewal->kept);
        if (renewal->result == lockcore::keep_step::outcome::lost) {
            co_await out.send(render_end("lost", kept, max_hold, out, renewal->reason));
            break;
        }
        if (renewal->result == lockcore::keep_step::outcome::exhausted) {
            end_reason = renewal->reason;
            break;
        }
        latest = co_await send_lease(out, "renewed", kept, max_hold);
    }
    // Release a lost lease too: a minority of the nodes may still hold it.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await release_abandoned_lease(locks, kept.current.claims, origin);
    if (!end_reason.empty()) co_await out.send(render_end(end_event, kept, max_hold, out, end_reason));
    out.limit_unacknowledged({});
}

/// Longest silence on a stream: proxies close connections that are silent for longer.
constexpr milliseconds watch_heartbeat{10'000};
/// Pause while too few nodes answer.
constexpr milliseconds watch_retry_pause{1'000};

/// Sends what becomes of a lease to a caller that watches it.
awaitable<void> follow_lease(const lease_services& services, lockcore::lease watched,
                             http::rights::time_point rights_until, http::body_stream& out) {
    const auto left = std::chrono::floor<milliseconds>(watched.valid_until - lockcore::boot_clock::now());
    const std::string first = render_watch_event("held", watched, {std::max(left, milliseconds{0}), out.served()}, {});
    bool open = co_await out.send(first);
    while (open) {
        const auto rights_left = std::chrono::ceil<milliseconds>(rights_until - http::rights::time_point::clock::now());
        if (rights_left <= milliseconds{0}) co_return;
        const auto seen = co_await services.locks.watch(watched.claims, std::min(watch_heartbeat, rights_left));
        if (!seen && seen.error().code != lockcore::errc::no_quorum) co_return;  // cancelled
        if (seen && seen->result != watch_outcome::live) {
            const bool released = seen->result == watch_outcome::released;
            watched.expires_at = std::chrono::system_clock::now();
            const std::string end =
                render_watch_event(released ? "released" : "lost", watched, {{}, out.served()},
                                   released ? "Its holder released it." : "It expired or was revoked.");
            co_await out.send(end);
            co_return;
        }
        if (!seen) {
            asio::steady_timer timer(co_await asio::this_coro::executor, watch_retry_pause);
            boost::system::error_code cancelled;
            co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
        }
        open = co_await out.send(":\n\n");
    }
}

}  // namespace

http::response kept_response(lockcore::lock_manager& locks, lockcore::lease granted, std::chrono::milliseconds max_hold,
                             std::string origin, std::shared_ptr<void> stream) {
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("X-Accel-Buffering", "no");
    out.headers.emplace_back("Location", location_of(granted.id));
    // A repeated request gets a hold of its own, so that the end of the first stream does not end this lease.
    if (granted.repeated) out.headers.emplace_back("Idempotency-Replayed", "true");
    out.undo_undelivered = [&locks, claims = granted.claims, origin] {
        return release_abandoned_lease(locks, claims, origin);
    };
    lockcore::kept_lease kept(std::move(granted));
    kept.limit_hold(max_hold);
    out.stream = [&locks, kept = std::move(kept), max_hold, origin, stream = std::move(stream)](
                     http::body_stream& body) { return keep(locks, kept, max_hold, origin, body); };
    return out;
}

http::awaitable_response watch_lease(const lease_services& services, lockcore::lease_claims claims, http::request r) {
    auto places = admit_stream(services.limiter, r, {limits::use::streams});
    if (!places) co_return places.error();
    const auto seen = co_await services.locks.inspect(std::move(claims));
    if (!seen) co_return to_failure(seen.error());
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("X-Accel-Buffering", "no");
    out.stream = [&services, watched = *seen, places = std::move(*places), rights_until = r.rights_until](
                     http::body_stream& body) { return follow_lease(services, watched, rights_until, body); };
    co_return out;
}

}  // namespace fencegate::api
