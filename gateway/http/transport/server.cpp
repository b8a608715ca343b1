#include <gateway/http/transport/server.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/session.hpp>
#include <gateway/http/transport/session_group.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/log.hpp>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <string>
#include <utility>

namespace fencegate::http {
namespace {

namespace asio = boost::asio;
using reuse_port = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
template <int name>
using tcp_integer = asio::detail::socket_option::integer<IPPROTO_TCP, name>;

/// A connection that is silent for this long is probed, so that a caller whose machine is dead leaves the queue for a
/// lease; and how often, and how many probes in succession a living one may leave unanswered.
constexpr int probe_after_seconds = 5;
constexpr int probe_interval_seconds = 2;
constexpr int probes_max = 3;

/// Pause after an error such as "too many open files", which an immediate retry would meet again.
constexpr std::chrono::milliseconds pause_after_error{100};
constexpr std::chrono::minutes pause_between_warnings{1};

/// Logs that a connection could not be accepted, once in a minute for all threads.
void warn_of_failure(const boost::system::error_code& error) {
    using std::chrono::steady_clock;
    static std::atomic<steady_clock::duration> next_warning{steady_clock::duration::min()};
    const auto now = steady_clock::now().time_since_epoch();
    auto earliest = next_warning.load();
    if (now < earliest || !next_warning.compare_exchange_strong(earliest, now + pause_between_warnings)) return;
    const bool no_files = error == boost::system::errc::too_many_files_open ||
                          error == boost::system::errc::too_many_files_open_in_system;
    runtime::log(spdlog::level::warn,
                 no_files ? "no connection can be accepted: the limit of open files is reached; raise it (ulimit -Hn)"
                          : "a connection could not be accepted; it is tried again",
                 {{"error", error.message()}});
}

/// How long handlers may take to end after their requests were cancelled.
constexpr std::chrono::seconds time_to_cancel{1};

/// The connections of all threads. A group belongs to its own thread, so that no part of it outlives its io_context.
struct all_sessions {
    struct thread {
        asio::io_context::executor_type executor;
        std::weak_ptr<session_group> sessions;
    };
    std::vector<thread> threads;
    std::shared_ptr<connection_count> count;
    std::atomic<int> moving = 0;  ///< Connections that are on their way to another thread.
};

/// Above this a connection is refused by its own thread: those on their way need open files, and are not counted yet.
constexpr int moving_max = 16;

void serve(tcp_socket socket, const asio::ip::address& peer, std::shared_ptr<session_group> sessions) {
    boost::system::error_code ignored;
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    session::start(std::make_shared<session>(std::move(socket), peer, std::move(sessions)));
}

/// Serves a connection above the limit in the place of another one, which may be of any thread, because the kernel
/// chooses the thread of each; refuses it if none may be closed. The threads are asked in turn, by passing the socket
/// on, the first one twice: connections whose end it was about to read are gone then.
///
/// In:      `asked`: how many threads had no connection to close.
/// Threads: that at `index`, which is asked next, and of which the socket is.
void serve_or_refuse(tcp_socket socket, const asio::ip::address& peer, connection_count::decision reason,
                     const std::shared_ptr<all_sessions>& all, std::size_t index, std::size_t asked) {
    const std::shared_ptr<session_group> here = all->threads[index].sessions.lock();
    if (!here || here->closing()) return;
    if (here->replace_one(reason, peer)) {
        all->count->add(peer);
        serve(std::move(socket), peer, here);
        return;
    }
    boost::system::error_code ec;
    const auto protocol = socket.local_endpoint(ec).protocol();
    if (asked == all->threads.size() || all->moving >= moving_max || ec) {
        here->refuse(std::move(socket), reason);
        return;
    }
    const std::size_t next = (index + 1) % all->threads.size();
    const auto executor = all->threads[next].executor;
    tcp_socket moved(executor);
    const auto handle = socket.release(ec);
    if (ec) return;
    moved.assign(protocol, handle, ec);
    if (ec) {
        ::close(handle);
        return;
    }
    ++all->moving;
    asio::post(executor, [socket = std::move(moved), peer, all, next, asked]() mutable {
        --all->moving;
        const std::shared_ptr<session_group> sessions = all->threads[next].sessions.lock();
        if (!sessions || sessions->closing()) return;
        const auto admitted = all->count->try_add(peer);  // connections may have ended meanwhile
        if (admitted == connection_count::decision::admitted) {
            serve(std::move(socket), peer, sessions);
        } else {
            serve_or_refuse(std::move(socket), peer, admitted, all, next, asked + 1);
        }
    });
}

/// One listening socket. Accepts connections on one thread and starts a session for each.
///
/// Threads: start and stop on the thread of its io_context; open before that thread runs it.
class listener : public std::enable_shared_from_this<listener> {
  public:
    /// `sessions`: of this thread, which has the `index` in `all`.
    listener(asio::io_context& io, std::shared_ptr<session_group> sessions, std::shared_ptr<all_sessions> all,
             std::size_t index);

    /// Binds and listens. `share_port`: other sockets of this process listen on the same port.
    ///
    /// Errors: boost::system::system_error.
    void open(const asio::ip::tcp::endpoint& at, bool share_port);
    asio::ip::tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }
    void start();
    void stop();

  private:
    static asio::awaitable<void> accept_all(std::shared_ptr<listener> self);

    asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type> acceptor_;
    std::shared_ptr<session_group> sessions_;
    std::shared_ptr<all_sessions> all_;
    std::size_t index_;
};

listener::listener(asio::io_context& io, std::shared_ptr<session_group> sessions, std::shared_ptr<all_sessions> all,
                   std::size_t index)
    : acceptor_(io), sessions_(std::move(sessions)), all_(std::move(all)), index_(index) {}

void listener::open(const asio::ip::tcp::endpoint& at, bool share_port) {
    acceptor_.open(at.protocol());
    acceptor_.set_option(asio::socket_base::reuse_address(true));
    if (share_port) acceptor_.set_option(reuse_port(true));
    // Accepted connections inherit these.
    acceptor_.set_option(asio::socket_base::keep_alive(true));
    acceptor_.set_option(tcp_integer<TCP_KEEPIDLE>(probe_after_seconds));
    acceptor_.set_option(tcp_integer<TCP_KEEPINTVL>(probe_interval_seconds));
    acceptor_.set_option(tcp_integer<TCP_KEEPCNT>(probes_max));
    acceptor_.bind(at);
    acceptor_.listen(asio::socket_base::max_listen_connections);
}

void listener::start() {
    auto accepting = accept_all(shared_from_this());
    runtime::run_in_background(acceptor_.get_executor(), std::move(accepting));
}

void listener::stop() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
}

asio::awaitable<void> listener::accept_all(std::shared_ptr<listener> self) {
    listener& l = *self;
    asio::steady_timer pause(co_await asio::this_coro::executor);
    while (l.acceptor_.is_open()) {
        tcp_socket socket(l.acceptor_.get_executor());
        boost::system::error_code ec;
        co_await l.acceptor_.async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
        if (!l.acceptor_.is_open()) co_return;
        if (ec == asio::error::connection_aborted) continue;
        if (ec) {
            warn_of_failure(ec);
            pause.expires_after(pause_after_error);
            co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
            continue;
        }
        const asio::ip::address peer = socket.remote_endpoint(ec).address();
        if (ec) continue;  // the connection is closed already
        const auto admitted = l.all_->count->try_add(peer);
        if (admitted != connection_count::decision::admitted) {
            serve_or_refuse(std::move(socket), peer, admitted, l.all_, l.index_, 0);
            continue;
        }
        serve(std::move(socket), peer, l.sessions_);
    }
}

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
    const auto all = std::make_shared<all_sessions>();
    all->count = impl_->connections;
    for (asio::io_context* io : loops) {
        impl::loop l;
        l.io = io;
        l.sessions = std::make_shared<session_group>(*io, impl_->cfg, impl_->current, tls, impl_->connections, memory,
                                                     limiter, observer);
        l.accepting = std::make_shared<listener>(*io, l.sessions, all, all->threads.size());
        all->threads.push_back({io->get_executor(), l.sessions});
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
        const auto probe = std::make_shared<listener>(unused, nullptr, nullptr, 0);
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
    // Kept until all threads have replaced theirs, so that it is destroyed here: that may wait for a thread of its
    // own, which no thread that serves should do.
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
