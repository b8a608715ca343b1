#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/request_observer.hpp>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::http {

/// A socket that names its executor: cheaper than one behind any_io_executor.
using tcp_socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

/// How many connections are open, over all threads and from each address. An IPv4 address counts by itself, an IPv6
/// address with its network of 64 bits, which is what one caller has.
///
/// Threads: any.
class connection_count {
  public:
    using address = boost::asio::ip::address;
    enum class admission { admitted, full, address_full };

    /// `highest_per_address` 0: no such limit.
    connection_count(std::size_t highest, std::size_t highest_per_address)
        : highest_(highest), highest_per_address_(highest_per_address) {}

    admission try_add(const address& peer);
    /// Counts one more in place of one that is being closed, and whose remove() is still to come.
    void add(const address& peer);
    void remove(const address& peer);
    static bool counts_as_same(const address& a, const address& b) { return key_of(a) == key_of(b); }
    std::size_t value() const;
    /// Blocks until none is left; false if `until` came first.
    bool wait_for_none(std::chrono::steady_clock::time_point until);

  private:
    using key = boost::asio::ip::address_v6::bytes_type;
    static key key_of(const address& peer);

    mutable std::mutex mutex_;
    std::condition_variable none_left_;
    std::size_t value_ = 0;
    std::map<key, std::size_t> by_address_;
    const std::size_t highest_, highest_per_address_;
};

/// A connection as its group knows it.
class group_member {
  public:
    explicit group_member(const boost::asio::ip::address& peer)
        : peer_(peer), phase_since_(std::chrono::steady_clock::now()) {}
    group_member(const group_member&) = delete;
    group_member& operator=(const group_member&) = delete;

    /// Closes if it has waited for a request, or for the peer to take any byte of an answer, for longer than
    /// http.idle_timeout.
    virtual void close_if_stale(std::chrono::steady_clock::time_point now) = 0;
    /// Whether a new connection may take its place: nothing is under way that a caller waits for.
    virtual bool is_replaceable(std::chrono::steady_clock::time_point now) const = 0;
    /// Whether its peer has taken nothing of an answer for a while.
    virtual bool is_stalled(std::chrono::steady_clock::time_point now) const = 0;
    /// Whether it waits for the first byte of a request.
    virtual bool is_idle() const = 0;
    /// Closes if nothing of a request has arrived; ends a streamed answer.
    virtual void wind_up() = 0;
    /// Cancels the request under way, whose answer is still sent, or closes where there is none.
    virtual void cancel() = 0;
    virtual void close() = 0;
    /// The caller is gone: cancels its request under way.
    virtual void hang_up() = 0;
    virtual int native_handle() = 0;
    const boost::asio::ip::address& peer() const { return peer_; }

  protected:
    ~group_member() = default;

    const boost::asio::ip::address peer_;
    std::chrono::steady_clock::time_point phase_since_;
    std::string principal_;                           ///< Of the request that is read or served.
    std::shared_ptr<reserved_memory> answer_memory_;  ///< Of http.answers_max_bytes, until the answer was taken.

  private:
    friend class session_group;
    std::size_t group_index_ = 0;
    std::optional<std::size_t> waiting_index_;
};

/// The connections of one thread, and what is done for all of them together instead of by a timer each: closing those
/// that idle, and finding out whose caller has hung up while its request waits.
///
/// Threads:  everything on the thread of its io_context.
/// Lifetime: held by its server and by each of its sessions.
class session_group : public std::enable_shared_from_this<session_group> {
  public:
    session_group(boost::asio::io_context& io, http_config cfg, std::shared_ptr<const dispatcher> routes,
                  std::shared_ptr<connection_count> connections, memory_budgets& memory, request_observer& observer);

    /// Begins the sweep of idle connections.
    void start();
    /// Closes the connection that has idled longest, so that another may take its place: first one without any byte of
    /// a request, else one whose request or goodbye has been on its way for a while. `of`: only connections of that
    /// address.
    ///
    /// Out: false if there is none on this thread.
    bool close_oldest_idle(const boost::asio::ip::address* of);
    /// Answers a connection that is not served, as far as its socket takes that at once, and closes it.
    void refuse(tcp_socket socket, connection_count::admission why);
    /// Closes connections that wait for a request; the others close after their answer.
    void close_idle();
    /// Cancels the requests under way; closes the connections without one.
    void cancel_all();
    /// Closes every connection as it stands.
    void close_all();

    const http_config& config() const { return config_; }
    const dispatcher& routes() const { return *routes_; }
    request_observer& observer() const { return observer_; }
    memory_budgets& memory() const { return memory_; }
    bool closing() const { return closing_; }
    /// Counts an answer of `s` that its caller has not taken, for which callers that take nothing of theirs are cut off
    /// where it does not fit. `required`: the others are cut off however fast they are, and it is counted in any case.
    ///
    /// Out: false if it does not fit.
    bool reserve_answer(group_member& s, std::size_t bytes, bool required);
    /// Of a connection that was counted already.
    void add(group_member& s);
    void remove(group_member& s);
    /// From here until end_waiting() it is found out when its caller hangs up.
    void begin_waiting(group_member& s);
    void end_waiting(group_member& s);
    /// For bytes that are dropped as they are read.
    boost::asio::mutable_buffer scratch() { return boost::asio::buffer(scratch_); }
    /// The header Date, made anew once a second.
    std::string_view date(std::chrono::steady_clock::time_point now);

  private:
    /// How often callers of waiting requests are looked at. It bounds how long a hang-up stays unnoticed.
    static constexpr std::chrono::milliseconds hang_up_interval{50};

    /// Cuts off callers that take nothing of their answers, with `all` also the others, until `bytes` more fit for
    /// `owner`; who has taken nothing for longest goes first. Not `except`.
    void cut_off_slow_callers(const std::string& owner, std::size_t bytes, bool all, const group_member* except);
    void schedule_sweep();
    void sweep();
    void schedule_hang_up_check();
    void check_hang_ups();

    http_config config_;
    std::shared_ptr<const dispatcher> routes_;
    std::shared_ptr<connection_count> connections_;
    memory_budgets& memory_;
    std::array<char, 64 * 1024> scratch_;
    request_observer& observer_;
    boost::asio::io_context::executor_type executor_;
    boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                      boost::asio::io_context::executor_type>
        sweep_timer_, hang_up_timer_;
    std::vector<group_member*> sessions_;
    std::vector<group_member*> waiting_;  ///< Those whose handler waits by intent.
    bool hang_up_check_scheduled_ = false;
    bool closing_ = false;
    std::string date_;
    std::chrono::steady_clock::time_point date_made_;
};

}  // namespace fencegate::http
