#include <gateway/api/leases/kept_lease.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_render.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using outcome = lockcore::keep_step::outcome;

/// An event behind which nothing of the lease is left.
std::string render_end(std::string_view name, lockcore::kept_lease kept, std::chrono::milliseconds max_hold,
                       const http::body_stream& out, std::string_view why) {
    kept.current.expires_at = std::chrono::system_clock::now();
    return render_lease_event(name, kept, {std::chrono::milliseconds{0}, out.served()}, max_hold, why);
}

/// Tells of the lease as it stands, unless its time is over before the event is sent.
awaitable<http::body_stream::outcome> send_lease(http::body_stream& out, std::string_view name,
                                                 const lockcore::kept_lease& kept, std::chrono::milliseconds max_hold) {
    http::expiring_text event;
    event.valid_until = kept.current.valid_until;
    event.render = [name, &kept, max_hold](std::chrono::milliseconds left, std::chrono::milliseconds served) {
        return render_lease_event(name, kept, {left, served}, max_hold, {});
    };
    co_return co_await out.send_expiring(event);
}

awaitable<void> keep(services with, lockcore::kept_lease kept, std::chrono::milliseconds max_hold, std::string trace_id,
                     http::body_stream& out) {
    std::string last_word;
    using sent = http::body_stream::outcome;
    sent last = co_await send_lease(out, "granted", kept, max_hold);
    while (last != sent::caller_gone) {
        if (last == sent::expired) {
            co_await out.send(render_end("lost", kept, max_hold, out, "It ran out before this could be told."));
            break;
        }
        auto step = co_await with.locks.keep(kept, trace_id);
        if (!step) {
            last_word = "The gateway is stopping.";  // or the caller hung up, and will not read it
            break;
        }
        kept = std::move(step->kept);
        if (step->what == outcome::lost) {
            co_await out.send(render_end("lost", kept, max_hold, out, step->why));
            break;
        }
        if (step->what == outcome::exhausted) {
            last_word = step->why;
            break;
        }
        last = co_await send_lease(out, "renewed", kept, max_hold);
    }
    // Also where it is lost: a minority of the nodes may still hold it.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await give_back(with, kept.current.claims, trace_id);
    if (!last_word.empty()) co_await out.send(render_end("released", kept, max_hold, out, last_word));
}

}  // namespace

http::response kept_response(services with, lockcore::lease granted, std::chrono::milliseconds max_hold,
                             std::string trace_id) {
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("Location", location_of(granted.id));
    // A repeated one has a hold of its own, so that the end of the first stream, which may long be dead, is not its
    // end.
    if (granted.repeated) out.headers.emplace_back("Idempotency-Replayed", "true");
    out.undo_undelivered = [with, claims = granted.claims, trace_id] { return give_back(with, claims, trace_id); };
    lockcore::kept_lease kept(std::move(granted));
    kept.hold_for(max_hold);
    out.stream = [with, kept = std::move(kept), max_hold, trace_id](http::body_stream& to) {
        return keep(with, kept, max_hold, trace_id, to);
    };
    return out;
}

}  // namespace fencegate::api
