#pragma once

#include <gateway/config/authority.hpp>
#include <gateway/config/config.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/message.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/connection_stream.hpp>
#include <gateway/http/transport/tls_channel.hpp>

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
#include <string_view>
#include <vector>

namespace fencegate::http {

/// Counts open connections, over all threads and for each address. An IPv4 address counts on its own, an IPv6 address
/// with its /64 network, which one caller usually has.
///
/// Threads: any.
class connection_count {
  public:
    using address = boost::asio::ip::address;
    enum class decision { admitted, full, address_full };

    /// `highest_per_address` 0: no such limit.
    connection_count(std::size_t highest, std::size_t highest_per_address)
        : highest_(highest), highest_per_address_(highest_per_address) {}

    decision try_add(const address& peer);
    /// Counts a connection that replaces one that is being closed, before remove() is called for that one.
    void add(const address& peer);
    void remove(const address& peer);
    static bool counts_as_same(const address& a, const address& b) { return limits::key_of(a) == limits::key_of(b); }
    std::size_t value() const;
    /// Blocks until no connection is left. Out: false if `until` came first.
    bool wait_for_none(std::chrono::steady_clock::time_point until);

  private:
    mutable std::mutex mutex_;
    std::condition_variable none_left_;
    std::size_t value_ = 0;
    std::map<limits::address_key, std::size_t> by_address_;
    const std::size_t highest_, highest_per_address_;
};

/// The interface of a connection for its group.
class group_member {
  public:
    explicit group_member(const boost::asio::ip::address& peer)
        : peer_(peer), phase_since_(std::chrono::steady_clock::now()) {}
    virtual ~group_member() = default;
    group_member(const group_member&) = delete;
    group_member& operator=(const group_member&) = delete;

    /// Closes the connection if for http.idle_timeout no request has begun, one has begun and not arrived completely,
    /// or no byte of an answer was read.
    virtual void close_if_stale(std::chrono::steady_clock::time_point now) = 0;
    /// What may be lost if the connection is closed for a new one, the least first. The request is one that may be
    /// under way to a connection that was just opened; a caller waits for the answer, so it is never closed.
    enum class loss { nothing, slow_request, request, answer };
    virtual loss loss_by_replacement(std::chrono::steady_clock::time_point now) const = 0;
    /// Returns whether a part of a request has arrived, or none yet since the connection was opened.
    virtual bool may_await_answer() const = 0;
    /// Returns whether bytes have arrived that were not read.
    virtual bool has_unread_bytes() = 0;
    /// Sends `refusal`, as far as that is possible without waiting, and closes the connection.
    virtual void close_with(std::string_view refusal) = 0;
    /// Returns whether its peer has read nothing of an answer for stalled_after.
    virtual bool is_stalled(std::chrono::steady_clock::time_point now) const = 0;
    /// Returns whether it waits for the first byte of a request.
    virtual bool is_idle() const = 0;
    /// Closes the connection if it is idle; ends a streamed answer.
    virtual void begin_shutdown() = 0;
    /// Ends the streamed answer or the wait of a caller whom `routes` no longer accepts; a request that waits is then
    /// refused. If `authorities_changed`, the same for a connection with a client certificate, which no longer counts;
    /// it is closed, after the answer of a request under way. A connection in its handshake is closed at once.
    virtual void end_unaccepted(const dispatcher& routes, bool authorities_changed) = 0;
    /// Cancels the request under way, whose answer is still sent; closes the connection if there is none.
    virtual void cancel() = 0;
    virtual void close() = 0;
    /// Cancels the request under way because the caller has hung up.
    virtual void on_hang_up() = 0;
    virtual int native_handle() = 0;
    const boost::asio::ip::address& peer() const { return peer_; }
    /// Returns the address of the other end as the log has it.
    std::string client() const { return canonical_address(peer_.to_string()); }

  protected:
    const boost::asio::ip::address peer_;
    std::chrono::steady_clock::time_point phase_since_;
    std::string principal_;                           ///< Of the current request.
    std::shared_ptr<reserved_memory> answer_memory_;  ///< Part of http.answers_max_bytes, until the answer was sent.

  private:
    friend class session_group;
    std::size_t group_index_ = 0;
    std::optional<std::size_t> waiting_index_;
};

/// The connections of one thread. One timer for all of them closes idle connections, another detects callers that hang
/// up while their requests wait.
///
/// Threads:  the thread of its io_context.
/// Lifetime: shared by its server and each of its sessions.
class session_group : public std::enable_shared_from_this<session_group> {
  public:
    session_group(boost::asio::io_context& io, http_config cfg, std::shared_ptr<const dispatcher> routes,
                  std::shared_ptr<const tls_context> tls, std::shared_ptr<connection_count> connections,
                  memory_budgets& memory, limits::limiter& limiter, request_observer& observer);

    /// Uses `routes` for requests that begin from now on, and `tls` (null: none) for connections that are accepted
    /// from now on. What no longer counts ends (group_member::end_unaccepted).
    void use(std::shared_ptr<const dispatcher> routes, std::shared_ptr<const tls_context> tls);

    /// Starts closing idle connections periodically.
    void start();
    /// Closes a connection to make space for one from `peer`: of those of the least group_member::loss the one that has
    /// been so for longest. None of which a request waits to be read. It gets an answer if its caller may await one.
    ///
    /// Out: false if there is none on this thread, or (decision::address_full) none of that address.
    bool replace_one(connection_count::decision reason, const boost::asio::ip::address& peer);
    /// Closes a connection that is not served; before, sends a problem document, without waiting, if there is no TLS.
    void refuse(tcp_socket socket, connection_count::decision reason);
    /// Closes each connection after its next answer, which says so.
    void close_after_answers() { keeps_alive_ = false; }
    /// Closes connections that wait for a request; the others close after their answer.
    void close_idle();
    /// Cancels the requests under way; closes the connections without one.
    void cancel_all();
    /// Closes every connection at once.
    void close_all();

    const http_config& config() const { return config_; }
    const std::shared_ptr<const dispatcher>& routes() const { return routes_; }
    const tls_context* tls() const { return tls_.get(); }
    request_observer& observer() const { return observer_; }
    memory_budgets& memory() const { return memory_; }
    limits::limiter& limiter() const { return limiter_; }
    bool closing() const { return closing_; }
    /// Returns whether connections stay open after an answer.
    bool keeps_alive() const { return keeps_alive_; }
    /// Counts an answer of `s` that its caller has not read yet. If it does not fit, closes connections whose callers
    /// are stalled. `required`: also closes connections that are not stalled, and counts the answer in any case.
    ///
    /// Out: false if it does not fit.
    bool reserve_answer(group_member& s, std::size_t bytes, bool required);
    /// Adds a connection that connection_count has counted already.
    void add(group_member& s);
    void remove(group_member& s);
    /// Starts checking whether the caller of `s` has hung up, until end_waiting().
    void begin_waiting(group_member& s);
    void end_waiting(group_member& s);
    /// Returns a buffer for bytes that are read only to be dropped.
    boost::asio::mutable_buffer scratch() { return boost::asio::buffer(scratch_); }
    /// Returns the header Date, rendered again once a second.
    std::string_view date(std::chrono::steady_clock::time_point now);

  private:
    /// How often waiting requests are checked, so how long a hang-up may stay unnoticed.
    static constexpr std::chrono::milliseconds hang_up_interval{50};

    /// Closes connections whose callers are stalled until `bytes` more fit for `owner`, the longest stalled first.
    /// `include_fast`: also those that are not stalled. Does not close `excluded`.
    void close_stalled_members(const std::string& owner, std::size_t bytes, bool include_fast,
                               const group_member* excluded);
    /// Reports the refusal of a connection. Out: the answer to its request.
    std::string make_refusal(connection_count::decision reason, const boost::asio::ip::address& peer);
    void end_unaccepted(bool authorities_changed);
    void schedule_sweep();
    void sweep();
    void schedule_hang_up_check();
    void check_hang_ups();

    http_config config_;
    std::shared_ptr<const dispatcher> routes_;
    std::shared_ptr<const tls_context> tls_;
    std::shared_ptr<const token_key_set> token_keys_;  ///< At the latest check of the streams' callers.
    std::shared_ptr<connection_count> connections_;
    memory_budgets& memory_;
    limits::limiter& limiter_;
    std::array<char, 64 * 1024> scratch_;
    request_observer& observer_;
    boost::asio::io_context::executor_type executor_;
    boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                      boost::asio::io_context::executor_type>
        sweep_timer_, hang_up_timer_;
    std::vector<group_member*> sessions_;
    std::vector<group_member*> waiting_;  ///< Those whose route is marked long_waiting, or that stream.
    bool hang_up_check_scheduled_ = false;
    bool keeps_alive_ = true;
    bool closing_ = false;
    std::string date_;
    std::chrono::steady_clock::time_point date_made_;
};

}  // namespace fencegate::http
