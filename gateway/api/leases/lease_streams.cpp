#include <gateway/api/leases/lease_streams.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_render.hpp>
#include <gateway/limits/caller.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::milliseconds;
using step = lockcore::watch_step::outcome;

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

awaitable<void> keep(lockcore::lock_manager& locks, lockcore::kept_lease kept, std::chrono::milliseconds max_hold,
                     std::string trace_id, http::body_stream& out) {
    // A machine that loses its power or its network says nothing: its lease is renewed only while it acknowledges.
    out.limit_unacknowledged(std::max(kept.current.ttl, unacknowledged_min));
    std::string_view end_event = "released";
    std::string end_reason;
    using sent = http::body_stream::outcome;
    sent last = co_await send_lease(out, "granted", kept, max_hold);
    while (last != sent::caller_gone) {
        if (last == sent::expired) {
            co_await out.send(render_end("lost", kept, max_hold, out, "It expired before the event could be sent."));
            break;
        }
        const bool acknowledged = co_await out.wait_acknowledged(kept.current.valid_until);
        if (!acknowledged) {
            end_event = "lost";
            end_reason = "It expired: the caller did not acknowledge the last event.";
            break;
        }
        auto renewal = co_await locks.keep(kept, trace_id);
        if (!renewal) {
            end_reason =
                "The gateway is stopping, or no longer accepts the credential.";  // not read if the caller hung up
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
        last = co_await send_lease(out, "renewed", kept, max_hold);
    }
    // Release a lost lease too: a minority of the nodes may still hold it.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await release_abandoned_lease(locks, kept.current.claims, trace_id);
    if (!end_reason.empty()) co_await out.send(render_end(end_event, kept, max_hold, out, end_reason));
    out.limit_unacknowledged({});
}

/// Longest silence on a stream: proxies close connections that are silent for longer.
constexpr milliseconds watch_heartbeat{10'000};
/// Pause while too few nodes answer.
constexpr milliseconds watch_retry_pause{1'000};

awaitable<void> follow_lease(const lease_services& services, lockcore::lease watched,
                             http::rights::time_point rights_until, http::body_stream& out) {
    const auto left = std::chrono::floor<milliseconds>(watched.valid_until - lockcore::boot_clock::now());
    const std::string held = render_watch_event("held", watched, {std::max(left, milliseconds{0}), out.served()}, {});
    bool open = co_await out.send(held);
    while (open) {
        const auto rights_left = std::chrono::ceil<milliseconds>(rights_until - http::rights::time_point::clock::now());
        if (rights_left <= milliseconds{0}) co_return;
        const auto seen = co_await services.locks.watch(watched.claims, std::min(watch_heartbeat, rights_left));
        if (!seen && seen.error().code != lockcore::errc::no_quorum) co_return;  // cancelled
        if (seen && seen->result != step::live) {
            const bool released = seen->result == step::released;
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
                             std::string trace_id, std::shared_ptr<void> stream) {
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("X-Accel-Buffering", "no");
    out.headers.emplace_back("Location", location_of(granted.id));
    // A repeated request gets a hold of its own, so that the end of the first stream does not end this lease.
    if (granted.repeated) out.headers.emplace_back("Idempotency-Replayed", "true");
    out.undo_undelivered = [&locks, claims = granted.claims, trace_id] {
        return release_abandoned_lease(locks, claims, trace_id);
    };
    lockcore::kept_lease kept(std::move(granted));
    kept.limit_hold(max_hold);
    out.stream = [&locks, kept = std::move(kept), max_hold, trace_id, stream = std::move(stream)](
                     http::body_stream& body) { return keep(locks, kept, max_hold, trace_id, body); };
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
