#pragma once

#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/connection_stream.hpp>
#include <gateway/http/transport/request_observer.hpp>
#include <gateway/http/transport/request_parser.hpp>
#include <gateway/http/transport/session_group.hpp>

#include <lockcore/boot_clock.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace fencegate::http {

/// One connection. Reads a request, calls its handler, writes the answer, and repeats. Pipelined requests wait in the
/// buffer and are served in order.
///
/// Threads:  the thread of its group's io_context.
/// Lifetime: its coroutine owns it.
class session final : public group_member {
  public:
    session(tcp_socket socket, const boost::asio::ip::address& peer, std::shared_ptr<session_group> group);
    ~session() override;
    static void start(const std::shared_ptr<session>& self);

    void close_if_stale(std::chrono::steady_clock::time_point now) override;
    loss loss_by_replacement(std::chrono::steady_clock::time_point now) const override;
    bool has_unread_bytes() override { return stream_.has_unread_input(); }
    bool is_unused() const override { return is_idle() && !answered_; }
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
    enum class phase { handshaking, reading, handling, writing, lingering };
    class chunk_writer;
    using message_parts = connection_stream::message_parts;
    enum class progress { need_more, complete, refused };

    static boost::asio::awaitable<void> run(std::shared_ptr<session> self);
    /// Performs the handshake of TLS. Out: false if it failed; the connection was closed then, after an answer that says why.
    boost::asio::awaitable<bool> accept_tls();
    /// Reads until a request is complete. Out: false if the connection has ended, or was closed after a refusal.
    boost::asio::awaitable<bool> read_request();
    /// Calls the handler of the complete request and delivers its answer. Out: whether another request may follow; if
    /// not, the connection was closed.
    boost::asio::awaitable<bool> answer_request();
    progress parse_buffered();
    /// Chooses the route or the final answer from the request's head.
    dispatcher::plan plan_answer(std::chrono::steady_clock::time_point now);
    /// Adds the fields RateLimit-Policy and RateLimit to an answer.
    void add_rate_fields(response& answer) const;
    /// Waits before the next request of an address whose request was refused, so that its answers cost little time.
    boost::asio::awaitable<void> delay_next_request();
    /// Refuses a request whose principal has too many requests under way.
    void refuse_request(dispatcher::plan& plan);
    /// Sets what the request's line decides about its answer.
    void note_form_of_answer();
    boost::asio::awaitable<void> answer_refused_input();
    /// Answers without reading the rest of the request, and closes the connection.
    boost::asio::awaitable<void> answer_refused_head(dispatcher::plan refused);
    /// Sends an answer. One that has expired becomes 410 lease-lost. Out: false if the kernel did not take all of it.
    boost::asio::awaitable<bool> respond(response& answer, bool keep_alive);
    void render_head_of(const response& answer, bool keep_alive);
    /// Counts a large answer that was not counted while it was made. If it does not fit into http.answers_max_bytes and
    /// the request can be repeated, it becomes 503 overloaded.
    void count_answer(response& answer);
    /// Compresses a large answer, if the memory for that is there; for a caller that asked for it. Lets other connections
    /// take turns.
    boost::asio::awaitable<void> compress_answer(response& answer);
    /// Renders head and text, and sends both within rendered_recently of rendering. `make_head` sets head_.
    boost::asio::awaitable<body_stream::outcome> send_expiring(const expiring_text& text,
                                                               std::function<void(const std::string&)> make_head,
                                                               std::string_view tail);
    /// Returns whether the kernel has taken all of the parts, of which the stream has accepted `accepted` bytes.
    bool is_sent(const message_parts& parts, std::size_t accepted) const;
    /// Sends what follows the first `accepted` bytes, and counts the memory of all parts meanwhile.
    boost::asio::awaitable<bool> write_rest(message_parts parts, std::size_t accepted);
    /// Counts what has arrived of a body. Out: false if it does not fit into http.bodies_max_bytes.
    bool reserve_body();
    /// Discards what was read of the request.
    void drop_request();
    std::chrono::milliseconds served() const;
    bool has_unread_input();
    /// Returns whether the connection may serve another request.
    bool may_continue() const { return group_->keeps_alive() && !certificate_withdrawn_; }
    boost::asio::awaitable<void> call_handler(const route& target, boost::asio::awaitable<response> handled,
                                              response& answer);
    boost::asio::awaitable<response> start_handler(const route& target);
    response answer_handler_failure(const route& target, const std::exception& e);
    boost::asio::awaitable<bool> stream(response answer);
    boost::asio::awaitable<void> undo(response answer);
    /// Replaces the answer of a request whose credential was withdrawn, if it grants something that can be undone, or if
    /// nothing was done; after undoing it. What has been written stays answered.
    boost::asio::awaitable<void> refuse_withdrawn(response& answer);
    boost::asio::awaitable<void> linger();
    /// Reports an answer that is about to be sent to the log and the observer.
    void report_answer(method verb, const dispatcher::plan& answered, std::chrono::steady_clock::duration time);
    void enter_phase(phase next, std::chrono::steady_clock::time_point now);
    /// Returns whether a part of a request has arrived; empty lines before it are none.
    bool has_begun() const;

    connection_stream stream_;
    std::shared_ptr<session_group> group_;
    boost::asio::cancellation_signal cancel_handler_;
    boost::beast::flat_buffer buffer_;
    std::unique_ptr<request_parser> parser_;  ///< For the request that is being read.
    failure refusal_;

    phase phase_ = phase::reading;
    bool continue_sent_ = false;
    bool peer_gone_ = false;
    bool answered_ = false;  ///< A request of the connection was answered.
    bool head_only_ = false;
    bool http_1_0_ = false;
    bool streaming_ = false;
    bool certificate_withdrawn_ = false;      ///< A reload has changed the authorities since the handshake.
    std::shared_ptr<const identity> caller_;  ///< Of the request under way; null: none, or not authenticated.
    bool credential_withdrawn_ = false;       ///< That of the request under way, since it began.
    bool waits_long_ = false;                 ///< The handler under way is that of a route marked long_waiting.
    bool counted_ = false;                    ///< The current request was counted against the limits.
    limits::rate_fields rate_;
    std::string head_;
    std::string request_id_;
    std::string trace_id_;
    std::string local_address_;
    lockcore::boot_clock::time_point received_;  ///< When the current request was read completely.
    std::chrono::steady_clock::time_point linger_since_;
    std::optional<reserved_memory> body_memory_;  ///< Part of http.bodies_max_bytes, until the request was handled.
    std::string allowed_origin_;     ///< Of the current request: whose pages may read its answer; empty: none.
    bool varies_by_origin_ = false;  ///< http.allowed_origins has entries.
    bool prefers_gzip_ = false;
    bool has_safe_method_ = false;  ///< The current request is GET or HEAD, so that the caller can repeat it.
};

}  // namespace fencegate::http
