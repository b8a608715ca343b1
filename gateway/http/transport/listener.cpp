#include <gateway/http/transport/listener.hpp>

#include <gateway/http/transport/session.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/runtime/log.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>

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

}  // namespace

listener::listener(asio::io_context& io, std::shared_ptr<session_group> sessions,
                   std::shared_ptr<connection_count> connections)
    : acceptor_(io), sessions_(std::move(sessions)), connections_(std::move(connections)) {}

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
        const auto admitted = l.connections_->try_add(peer);
        if (admitted != connection_count::decision::admitted) {
            if (!l.sessions_->replace_one(admitted, peer)) {
                l.sessions_->refuse(std::move(socket), admitted);
                continue;
            }
            l.connections_->add(peer);
        }
        socket.set_option(asio::ip::tcp::no_delay(true), ec);
        session::start(std::make_shared<session>(std::move(socket), peer, l.sessions_));
    }
}

}  // namespace fencegate::http
