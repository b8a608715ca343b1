#include <gateway/http/transport/server.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/listener.hpp>
#include <gateway/http/transport/session_group.hpp>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

#include <latch>
#include <string>
#include <utility>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;

/// How long handlers may take to end after their requests were cancelled.
constexpr std::chrono::seconds time_to_cancel{1};

}  // namespace

struct server::impl {
    struct loop {
        asio::io_context* io = nullptr;
        std::shared_ptr<session_group> sessions;
        std::shared_ptr<listener> accepting;
    };
    http_config cfg;
    std::shared_ptr<const router> routes;
    std::shared_ptr<const dispatcher> current;
    limits::limiter* limiter = nullptr;
    std::shared_ptr<connection_count> connections;
    std::vector<loop> loops;
    std::uint16_t port = 0;

    void open_all();
};

server::server(http_config cfg, const auth_config& auth, std::vector<route> routes,
               std::vector<asio::io_context*> loops, memory_budgets& memory, limits::limiter& limiter,
               request_observer& observer, std::shared_ptr<const tls_context> tls)
    : impl_(std::make_unique<impl>()) {
    impl_->cfg = std::move(cfg);
    impl_->connections =
        std::make_shared<connection_count>(impl_->cfg.connections_max, impl_->cfg.connections_per_address_max);
    impl_->limiter = &limiter;
    impl_->routes = std::make_shared<const router>(std::move(routes));
    impl_->current = std::make_shared<const dispatcher>(impl_->routes, auth, impl_->cfg, limiter);
    const auto shared = impl_->current;
    for (asio::io_context* io : loops) {
        impl::loop l;
        l.io = io;
        l.sessions = std::make_shared<session_group>(*io, impl_->cfg, shared, tls, impl_->connections, memory, limiter,
                                                     observer);
        l.accepting = std::make_shared<listener>(*io, l.sessions, impl_->connections);
        impl_->loops.push_back(std::move(l));
    }
}

server::~server() = default;

void server::impl::open_all() {
    asio::ip::tcp::endpoint at(asio::ip::make_address(cfg.address), cfg.port);
    const bool share_port = loops.size() > 1;
    if (share_port && at.port() != 0) {
        // With SO_REUSEPORT a second gateway could bind the same port and receive half of the connections unnoticed.
        // So first bind the port without it.
        asio::io_context unused;
        const auto probe = std::make_shared<listener>(unused, nullptr, nullptr);
        probe->open(at, false);
    }
    for (const loop& l : loops) {
        l.accepting->open(at, share_port);
        at.port(l.accepting->endpoint().port());
    }
    port = at.port();
}

result<void> server::listen() {
    try {
        impl_->open_all();
    } catch (const boost::system::system_error& e) {
        return make_failure(errc::internal_error,
                            "cannot listen on " + format_url_host(impl_->cfg.address) + ":" +
                                std::to_string(impl_->cfg.port) + ": " + e.code().message() +
                                (e.code() == asio::error::address_in_use
                                     ? "; another process listens there: stop it, or change http.port"
                                     : ""));
    }
    return {};
}

void server::start() {
    for (const impl::loop& l : impl_->loops) {
        asio::post(*l.io, [l] {
            l.sessions->start();
            l.accepting->start();
        });
    }
}

std::uint16_t server::port() const {
    return impl_->port;
}

std::size_t server::connections() const {
    return impl_->connections->value();
}

result<void> server::reload(const auth_config& auth, const http_config& cfg,
                            const std::shared_ptr<const tls_context>& tls) {
    const auto replacement =
        std::make_shared<const dispatcher>(impl_->routes, auth, cfg, *impl_->limiter, impl_->current.get());
    if (const std::string& fault = replacement->token_source_fault(); !fault.empty())
        return make_failure(errc::invalid_request, "auth.jwt.jwks_url: " + fault);
    // Destroyed at the end, when no other thread has it: it may wait for a thread of its own, which no thread that serves
    // should do.
    const auto earlier = std::exchange(impl_->current, replacement);
    const auto pending = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(impl_->loops.size()));
    for (const impl::loop& l : impl_->loops) {
        asio::post(*l.io, [sessions = l.sessions, replacement, tls, pending] {
            sessions->use(replacement, tls);
            pending->count_down();
        });
    }
    pending->wait();
    return {};
}

void server::close_after_answers() {
    for (const impl::loop& l : impl_->loops) {
        asio::post(*l.io, [sessions = l.sessions] { sessions->close_after_answers(); });
    }
}

void server::stop_accepting() {
    for (const impl::loop& l : impl_->loops) {
        asio::post(*l.io, [l] {
            l.accepting->stop();
            l.sessions->close_idle();
        });
    }
}

bool server::stop(std::chrono::steady_clock::time_point until) {
    stop_accepting();
    const bool all_ended = impl_->connections->wait_for_none(until);
    if (!all_ended) {
        for (const impl::loop& l : impl_->loops) {
            asio::post(*l.io, [sessions = l.sessions] { sessions->cancel_all(); });
        }
        impl_->connections->wait_for_none(std::chrono::steady_clock::now() + time_to_cancel);
    }
    for (const impl::loop& l : impl_->loops) {
        asio::post(*l.io, [sessions = l.sessions] { sessions->close_all(); });
    }
    return all_ended;
}

}  // namespace fencegate::http
