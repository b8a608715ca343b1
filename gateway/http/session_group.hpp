#pragma once

#include <gateway/config/config.hpp>
#include <gateway/http/dispatcher.hpp>
#include <gateway/http/request_observer.hpp>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fencegate::http {

class session;

/// A socket that names its executor: cheaper than one behind any_io_executor (FEASIBILITY.md 3).
using tcp_socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

/// How many connections are open, over all threads.
class connection_count {
  public:
    explicit connection_count(std::size_t highest) : highest_(highest) {}

    /// False if there are as many as allowed.
    bool try_add();
    void remove();
    std::size_t value() const;
    /// Blocks until none is left; false if `until` came first.
    bool wait_for_none(std::chrono::steady_clock::time_point until);

  private:
    mutable std::mutex mutex_;
    std::condition_variable none_left_;
    std::size_t value_ = 0;
    const std::size_t highest_;
};

/// The connections of one thread, and what is done for all of them together instead of by a timer each: closing those
/// that idle, and finding out whose caller has hung up while its request waits.
///
/// Threads:  everything on the thread of its io_context.
/// Lifetime: held by its server and by each of its sessions.
class session_group : public std::enable_shared_from_this<session_group> {
  public:
    session_group(boost::asio::io_context& io, http_config cfg, std::shared_ptr<const dispatcher> routes,
                  std::shared_ptr<connection_count> connections, request_observer& observer);

    /// Begins the sweep of idle connections.
    void start();
    /// Serves a connection that was counted already.
    void serve(tcp_socket socket);
    /// Closes connections that wait for a request; the others close after their answer.
    void close_idle();
    /// Cancels the requests under way; closes the connections without one.
    void cancel_all();
    /// Closes every connection as it stands.
    void close_all();

    const http_config& config() const { return config_; }
    const dispatcher& routes() const { return *routes_; }
    request_observer& observer() const { return observer_; }
    bool closing() const { return closing_; }
    /// The header Date, made anew once a second.
    std::string_view date(std::chrono::steady_clock::time_point now);

  private:
    friend class session;
    /// How often callers of waiting requests are looked at. It bounds how long a hang-up stays unnoticed.
    static constexpr std::chrono::milliseconds hang_up_interval{50};

    void add(session& s);
    void remove(session& s);
    void begin_waiting(session& s);
    void end_waiting(session& s);
    void schedule_sweep();
    void sweep();
    void schedule_hang_up_check();
    void check_hang_ups();

    http_config config_;
    std::shared_ptr<const dispatcher> routes_;
    std::shared_ptr<connection_count> connections_;
    request_observer& observer_;
    boost::asio::io_context::executor_type executor_;
    boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                      boost::asio::io_context::executor_type>
        sweep_timer_, hang_up_timer_;
    std::vector<session*> sessions_;
    std::vector<session*> waiting_;  ///< Those whose handler waits by intent.
    bool hang_up_check_scheduled_ = false;
    bool closing_ = false;
    std::string date_;
    std::chrono::steady_clock::time_point date_made_;
};

}  // namespace fencegate::http
