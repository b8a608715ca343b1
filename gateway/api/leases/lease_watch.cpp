#include <gateway/api/leases/lease_watch.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_render.hpp>
#include <gateway/api/leases/lock_failures.hpp>
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

/// Longest silence on a stream: proxies close connections that are silent for longer.
constexpr milliseconds watch_heartbeat{10'000};
/// Pause while too few nodes answer.
constexpr milliseconds watch_retry_pause{1'000};

awaitable<void> follow_lease(const gateway_services& services, lockcore::lease watched,
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

http::awaitable_response watch_lease(const gateway_services& services, lockcore::lease_claims claims, http::request r) {
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
