#pragma once

#include <gateway/config/authority.hpp>
#include <gateway/http/message.hpp>
#include <gateway/http/transport/connection_stream.hpp>
#include <gateway/http/transport/request_parser.hpp>
#include <gateway/http/transport/session_group.hpp>

#include <lockcore/types.hpp>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::http {

/// What a connection keeps from one request to the next. Its session reads requests from it, and its exchange answers
/// the current one over it.
///
/// Threads: the thread of its group's io_context.
class connection : public group_member {
  protected:
    friend class exchange;
    enum class phase { handshaking, reading, handling, writing, lingering };

    connection(tcp_socket socket, const boost::asio::ip::address& peer, std::shared_ptr<session_group> group)
        : group_member(peer), stream_(std::move(socket), group->tls()), group_(std::move(group)) {
        if (stream_.uses_tls()) phase_ = phase::handshaking;
        boost::system::error_code ignored;
        const auto local = stream_.socket().local_endpoint(ignored);
        if (!ignored) local_address_ = canonical_address(local.address().to_string());
    }

    /// Returns whether the connection may serve another request.
    bool may_continue() const { return group_->keeps_alive() && !certificate_withdrawn_; }
    void enter_phase(phase next, std::chrono::steady_clock::time_point now) {
        phase_ = next;
        phase_since_ = now;
    }

    connection_stream stream_;
    std::shared_ptr<session_group> group_;
    boost::asio::cancellation_signal cancel_handler_;
    boost::beast::flat_buffer buffer_;
    phase phase_ = phase::reading;
    bool peer_gone_ = false;
    bool certificate_withdrawn_ = false;  ///< A reload has changed the authorities since the handshake.
    std::string local_address_;
};

/// One request of a connection: what was read of it and decided about it, and its answer, until that is delivered or
/// undone. Nothing of a request outlives it.
///
/// Threads:  that of its connection.
/// Lifetime: the session of the connection owns it.
class exchange {
  public:
    enum class progress { need_more, complete, refused };

    explicit exchange(connection& owner);
    ~exchange();
    exchange(const exchange&) = delete;
    exchange& operator=(const exchange&) = delete;

    // --- Reading.

    /// Parses what has arrived. Decides about the request as soon as its head is complete, so that one that is not
    /// allowed or has no route is refused before its body is read.
    ///
    /// Out: refused: the answer is ready to be sent (send_refusal).
    progress parse();
    /// Makes the answer to input that is no request which can be served.
    void refuse_input(const failure& fault);
    bool has_begun() const { return parser_ && parser_->got_some(); }
    bool is_head_complete() const { return parser_->is_header_done(); }
    /// Returns, once, whether the caller waits for 100 Continue.
    bool take_expectation();

    // --- Answering.

    /// Sends the answer of a request that was refused while it was read. Out: whether it was delivered.
    boost::asio::awaitable<bool> send_refusal();
    /// Calls the handler of the complete request and delivers its answer, or undoes what it granted.
    ///
    /// Out: false if the connection is lost.
    boost::asio::awaitable<bool> answer();
    /// Returns whether the answer allows a further request on the connection.
    bool keeps_alive() const { return keep_alive_; }
    /// Returns whether the answer refuses the caller's address, and not only this request.
    bool refuses_address() const { return decision_.address_refused; }
    bool is_streaming() const { return streaming_; }

    /// Notes whether the credential of the caller was withdrawn: if `connection_withdrawn` or `routes` does not accept
    /// it any more. Out: whether the request has to be cancelled for it, because it waits or streams.
    bool withdraw_credential(const dispatcher& routes, bool connection_withdrawn);

  private:
    class chunk_writer;
    using phase = connection::phase;
    using message_parts = connection_stream::message_parts;

    /// Sets decision_ by the request's head.
    void decide(std::chrono::steady_clock::time_point now);
    /// Counts what has arrived of a body. Out: false if it does not fit into http.bodies_max_bytes.
    bool reserve_body();
    /// Notes what the request's head decides about the form of its answer.
    void note_form_of_answer();
    /// Counts the request against the limit of those that its principal has under way, and refuses it above that.
    void enter_limit_of_requests();

    awaitable_response start_handler();
    boost::asio::awaitable<void> call_handler(awaitable_response handling);
    /// Logs what a handler has thrown, and returns the failure for the caller.
    failure handler_failure(const std::exception& e) const;
    /// Replaces the answer of a request whose credential was withdrawn, if it grants something that can be undone, or
    /// if nothing was done; after undoing it. What has been written stays answered.
    boost::asio::awaitable<void> refuse_withdrawn();
    void refuse(const failure& f);
    boost::asio::awaitable<void> undo();
    /// Reports an answer that is about to be sent to the log and the observer.
    void report_answer(std::chrono::steady_clock::duration time) const;

    /// Sends the answer, or only its head if it is a stream. Out: whether the kernel took all of it.
    boost::asio::awaitable<bool> deliver();
    /// Sends the answer. One that has expired becomes 410 lease-lost. Out: false if the kernel did not take all of it.
    boost::asio::awaitable<bool> respond();
    boost::asio::awaitable<bool> stream();
    void render_head_of_answer();
    /// Adds the fields RateLimit-Policy and RateLimit to the answer.
    void add_rate_fields();
    /// Counts a large answer that was not counted while it was made. If it does not fit into http.answers_max_bytes and
    /// the request can be repeated, it becomes 503 overloaded.
    void count_answer();
    /// Compresses a large answer, if the memory for that is there; for a caller that asked for it. Lets other
    /// connections take turns.
    boost::asio::awaitable<void> compress_answer();
    /// Renders head and text, and sends both within rendered_recently of rendering. `make_head` sets head_.
    boost::asio::awaitable<body_stream::outcome> send_expiring(const expiring_text& text,
                                                               std::function<void(const std::string&)> make_head,
                                                               std::string_view tail);
    /// Returns whether the kernel has taken all of the parts, of which the stream has accepted `accepted` bytes.
    bool is_sent(const message_parts& parts, std::size_t accepted) const;
    /// Sends what follows the first `accepted` bytes, and counts the memory of all parts meanwhile.
    boost::asio::awaitable<bool> write_rest(message_parts parts, std::size_t accepted);
    std::chrono::milliseconds served() const;
    bool head_only() const { return verb_ == method::head; }
    /// Returns whether the caller can repeat the request.
    bool has_safe_method() const { return verb_ == method::get || verb_ == method::head; }

    connection& connection_;
    connection_stream& stream_;
    session_group& group_;
    std::unique_ptr<request_parser> parser_;      ///< Until the handler has the request.
    std::optional<reserved_memory> body_memory_;  ///< Part of http.bodies_max_bytes, until the request was handled.
    bool admitted_ = false;                       ///< The head was not refused; its body is read.
    bool counted_ = false;                        ///< It was counted against the limits.
    bool expectation_taken_ = false;
    dispatcher::decision decision_;  ///< What to do, and the answer, also that of the handler.
    limits::rate_fields rate_;
    limits::place under_way_;
    std::string request_id_;
    std::string trace_id_;

    method verb_ = method::other;
    bool http_1_0_ = false;
    bool keep_alive_ = false;
    bool prefers_gzip_ = false;
    bool varies_by_origin_ = false;  ///< http.allowed_origins has entries.
    std::string allowed_origin_;     ///< Whose pages may read the answer; empty: none.

    std::chrono::steady_clock::time_point begun_;  ///< When the request was read completely.
    lockcore::boot_clock::time_point received_;    ///< The same, by the clock of leases.
    bool waits_long_ = false;                      ///< The handler under way is that of a route marked long_waiting.
    bool streaming_ = false;
    bool credential_withdrawn_ = false;  ///< Since the request was read.
    std::string head_;                   ///< Of the answer, or of the piece of a stream that is being sent.
};

}  // namespace fencegate::http
