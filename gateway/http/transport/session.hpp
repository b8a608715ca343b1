#pragma once

#include <gateway/http/transport/exchange.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <memory>

namespace fencegate::http {

/// One connection. Reads a request, lets its exchange answer it, and repeats. Pipelined requests wait in the buffer and
/// are served in order.
///
/// Threads:  the thread of its group's io_context.
/// Lifetime: its coroutine owns it.
class session final : public connection {
  public:
    session(tcp_socket socket, const boost::asio::ip::address& peer, std::shared_ptr<session_group> group);
    ~session() override;
    static void start(const std::shared_ptr<session>& self);

    void close_if_stale(std::chrono::steady_clock::time_point now) override;
    loss loss_by_replacement(std::chrono::steady_clock::time_point now) const override;
    bool has_unread_bytes() override { return buffer_.size() > 0 || stream_.has_unread_input(); }
    bool may_await_answer() const override { return phase_ == phase::reading && (has_begun() || !answered_); }
    void close_with(std::string_view refusal) override;
    bool is_stalled(std::chrono::steady_clock::time_point now) const override;
    bool is_idle() const override;
    void begin_shutdown() override;
    void end_unaccepted(const dispatcher& routes, bool authorities_changed) override;
    void cancel() override;
    void close() override;
    void on_hang_up() override;
    int native_handle() override { return stream_.socket().native_handle(); }

  private:
    static boost::asio::awaitable<void> run(std::shared_ptr<session> self);
    /// Performs the handshake of TLS. Out: false if it failed; the connection was closed then, after an answer that
    /// says why.
    boost::asio::awaitable<bool> accept_tls();
    /// Reads a request and answers it. Out: whether another one may follow; if not, the connection has ended.
    boost::asio::awaitable<bool> serve_request();
    /// Reads until a request is complete. Out: false if the connection has ended, or was closed after a refusal.
    boost::asio::awaitable<bool> read_request();
    /// Answers a request that was refused without reading the rest of it, and closes the connection.
    boost::asio::awaitable<void> close_after_refusal();
    /// Waits before the next request of an address whose request was refused, so that its answers cost little time.
    boost::asio::awaitable<void> delay_next_request();
    /// Reads and drops what the caller still sends, because closing with unread bytes would lose the answer.
    boost::asio::awaitable<void> linger();
    bool has_unread_input();
    /// Returns whether a part of a request has arrived; empty lines before it are none.
    bool has_begun() const;

    std::chrono::steady_clock::time_point linger_since_;
    bool answered_ = false;               ///< A request of the connection was answered.
    bool first_bytes_arrived_ = false;    ///< Of a request; they may be read already, and are not parsed. Not with TLS.
    std::unique_ptr<exchange> exchange_;  ///< The current request; null between two.
};

}  // namespace fencegate::http
