#pragma once

#include <gateway/http/identity/identity.hpp>
#include <gateway/http/transport/tls_channel.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

namespace fencegate::http {

/// The bytes of one connection, plain or by TLS. Reads wait; writes do not, but say how much was accepted.
///
/// With TLS a byte counts as accepted once it is encrypted. What the kernel did not take of its record waits here: at
/// most one record (16 KiB), because nothing further is accepted meanwhile.
///
/// Threads: the thread of the socket's io_context.
class connection_stream {
  public:
    using message_parts = std::array<boost::asio::const_buffer, 3>;
    enum class handshake_result { done, failed, plain_http };

    /// `tls`: null for a connection without TLS.
    connection_stream(tcp_socket socket, const tls_context* tls);
    ~connection_stream();
    connection_stream(const connection_stream&) = delete;
    connection_stream& operator=(const connection_stream&) = delete;

    tcp_socket& socket() { return socket_; }
    const tcp_socket& socket() const { return socket_; }
    bool uses_tls() const { return channel_ != nullptr; }

    /// Performs the handshake of TLS. Afterwards a stream whose peer sends HTTP without TLS is plain; one whose
    /// handshake failed has sent the alert that says why, and can only be closed.
    boost::asio::awaitable<handshake_result> accept_tls();
    /// Returns the verified certificate of the caller; null if there is none.
    const client_certificate* certificate() const { return certificate_ ? &*certificate_ : nullptr; }

    /// Returns whether TLS has taken bytes from the socket that read_some() has not returned.
    bool has_buffered_input() const;
    /// Waits for bytes and reads them. Out: their number; `ec` is set if there are none, because the connection ended.
    boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer target, boost::system::error_code& ec);
    bool has_unread_input();

    /// Sends or accepts what fits now, in the order of `parts`. Out: the number of bytes; empty if the connection is
    /// lost.
    std::optional<std::size_t> try_write(const message_parts& parts);
    /// Returns how many accepted bytes, after encryption, the kernel has not taken yet. try_write() sends them first.
    std::size_t unsent() const;
    /// Sends all of a short text. Out: false if the connection is lost.
    boost::asio::awaitable<bool> write_all(boost::asio::const_buffer text);
    /// Waits until try_write() may send something. Out: false if the connection is lost.
    boost::asio::awaitable<bool> wait_writable();

    /// Tells the peer that nothing more is sent. What it still sends can be read by drop_input().
    void finish_sending(boost::system::error_code& ec);
    /// Reads bytes, without decrypting them, in order to drop them. Out: their number.
    std::size_t drop_input(boost::asio::mutable_buffer scratch, boost::system::error_code& ec);
    /// Returns whether the peer has closed its side, also while bytes of it are unread.
    bool peer_has_hung_up();
    /// Returns whether the system of the peer has acknowledged all bytes that were sent.
    bool is_acknowledged();
    /// Lets the kernel close the connection when sent bytes, or probes of a silent connection, are not acknowledged for
    /// `longest`; 0: as the kernel decides by itself.
    void limit_unacknowledged(std::chrono::milliseconds longest);
    void close();

  private:
    boost::asio::awaitable<std::size_t> read_decrypted(boost::asio::mutable_buffer target,
                                                       boost::system::error_code& ec);
    boost::asio::awaitable<void> wait_for_socket(tcp_socket::wait_type event, boost::system::error_code& ec);
    boost::asio::awaitable<bool> is_plain_http();
    bool is_writable();
    /// Waits until no accepted byte is unsent.
    boost::asio::awaitable<void> flush(boost::system::error_code& ec);

    tcp_socket socket_;
    std::unique_ptr<tls_channel> channel_;
    std::optional<client_certificate> certificate_;
};

}  // namespace fencegate::http
