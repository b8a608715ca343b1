#pragma once

#include <gateway/http/transport/session_group.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>

#include <memory>

namespace fencegate::http {

/// One listening socket. Accepts connections on one thread and starts a session for each.
///
/// Threads: start and stop on the thread of its io_context; open before that thread runs it.
class listener : public std::enable_shared_from_this<listener> {
  public:
    listener(boost::asio::io_context& io, std::shared_ptr<session_group> sessions,
             std::shared_ptr<connection_count> connections);

    /// Binds and listens. `share_port`: other sockets of this process listen on the same port.
    ///
    /// Errors: boost::system::system_error.
    void open(const boost::asio::ip::tcp::endpoint& at, bool share_port);
    boost::asio::ip::tcp::endpoint endpoint() const { return acceptor_.local_endpoint(); }
    void start();
    void stop();

  private:
    static boost::asio::awaitable<void> accept_all(std::shared_ptr<listener> self);

    boost::asio::basic_socket_acceptor<boost::asio::ip::tcp, boost::asio::io_context::executor_type> acceptor_;
    std::shared_ptr<session_group> sessions_;
    std::shared_ptr<connection_count> connections_;
};

}  // namespace fencegate::http
