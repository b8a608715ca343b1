#pragma once

#include <gateway/http/identity/identity.hpp>
#include <gateway/http/transport/tcp_socket.hpp>
#include <gateway/http/transport/tls_context.hpp>

#include <boost/asio/buffer.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace fencegate::http {

/// TLS on the server's side of one socket that does not block. OpenSSL reads from the socket. It writes records to it
/// through this object, which keeps what the kernel does not take: so each write of OpenSSL is complete, and no record
/// is left half written when the caller has something else to say.
///
/// Limits: unsent_max; OpenSSL's state and buffers, which it frees while the connection is idle.
class tls_channel {
  public:
    enum class progress {
        done,
        needs_input,  ///< Wait until the socket is readable, then call again.
        ended,        ///< The peer has closed TLS or the connection.
        failed,       ///< The connection is unusable; an alert was sent if the peer violated a rule.
    };

    /// `socket` outlives it and does not block.
    tls_channel(tcp_socket& socket, ssl_handle ssl);
    tls_channel(const tls_channel&) = delete;
    tls_channel& operator=(const tls_channel&) = delete;

    progress accept();
    /// Out: `count`, at least 1 if done.
    progress read(boost::asio::mutable_buffer target, std::size_t& count);
    /// Returns whether bytes were taken from the socket that read() has not returned.
    bool has_buffered_input() const { return SSL_has_pending(ssl_.get()) == 1; }
    /// Encrypts `text`, at most record_max, as one record. Out: false if the connection is unusable.
    bool write(std::span<const char> text);
    /// Sends what the kernel takes of the unsent bytes. Out: false if the connection is lost.
    bool send_unsent();
    std::size_t unsent() const { return unsent_.size() - sent_; }
    /// Sends the alert close_notify (RFC 8446, 6.1), unless that happened or the connection is unusable.
    void close_notify();
    /// Returns the peer's certificate, which the handshake has verified; empty if it sent none.
    std::optional<client_certificate> peer_certificate() const;

    /// The most text of one record.
    static constexpr std::size_t record_max = SSL3_RT_MAX_PLAIN_LENGTH;

  private:
    /// A handshake's answer with the longest allowed chain of certificates fits, as do the alerts of a peer that reads nothing.
    static constexpr std::size_t unsent_max = 256 * 1024;

    static int on_write(BIO* bio, const char* data, std::size_t size, std::size_t* written);
    static long on_control(BIO* bio, int command, long argument, void* pointer);
    static BIO_METHOD* method();
    bool take(std::span<const char> encrypted);
    progress classify(int returned);
    void log_failure() const;

    tcp_socket& socket_;
    ssl_handle ssl_;
    std::string unsent_;
    std::size_t sent_ = 0;  ///< The part of unsent_ that was sent since.
    bool unusable_ = false;
};

}  // namespace fencegate::http
