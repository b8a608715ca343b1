#include <gateway/api/kept_lease.hpp>

#include <gateway/api/lease_access.hpp>
#include <gateway/api/lease_render.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/asio/this_coro.hpp>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using outcome = lockcore::keep_step::outcome;

/// An event that ends the stream: nothing of the lease is left behind it.
std::string last_event(std::string_view name, lockcore::kept_lease kept, std::chrono::milliseconds max_hold,
                       std::string_view reason) {
    kept.current.validity = {};
    kept.current.expires_at = std::chrono::system_clock::now();
    return render_lease_event(name, kept, max_hold, reason);
}

awaitable<void> keep(services with, lockcore::kept_lease kept, std::chrono::milliseconds max_hold, std::string trace_id,
                     http::body_stream& out) {
    std::string last_word;
    bool listening = co_await out.send(render_lease_event("granted", kept, max_hold, {}));
    while (listening) {
        auto step = co_await with.locks.keep(kept, trace_id);
        if (!step) {
            last_word = "The gateway is stopping.";  // or the caller hung up, and will not read it
            break;
        }
        kept = std::move(step->kept);
        if (step->what == outcome::lost) {
            co_await out.send(last_event("lost", kept, max_hold, step->why));
            break;
        }
        if (step->what == outcome::exhausted) {
            last_word = step->why;
            break;
        }
        listening = co_await out.send(render_lease_event("renewed", kept, max_hold, {}));
    }
    // Also where it is lost: a minority of the nodes may still hold it.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await give_back(with, kept.current.claims, trace_id);
    if (!last_word.empty()) co_await out.send(last_event("released", kept, max_hold, last_word));
}

}  // namespace

http::response kept_response(services with, lockcore::lease granted, std::chrono::milliseconds max_hold,
                             std::string trace_id) {
    http::response out;
    out.content_type = "text/event-stream";
    out.headers.emplace_back("Location", location_of(granted.id));
    out.headers.emplace_back("Cache-Control", "no-store");
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
