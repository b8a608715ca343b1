#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/http/identity/identity.hpp>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace fencegate::http {

/// A socket with a concrete executor type, which is cheaper than any_io_executor.
using tcp_socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

struct ssl_deleter {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using ssl_handle = std::unique_ptr<SSL, ssl_deleter>;

/// The certificates and rules of TLS for new connections: TLS 1.2 with AEAD cipher suites and forward secrecy, and TLS
/// 1.3; ALPN `http/1.1`; neither renegotiation nor compression. No session is resumed, so that the certificate of a
/// caller is verified on each connection and no key of session tickets exists.
///
/// Threads: any; immutable after construction.
class tls_context {
  public:
    /// Errors: errc::internal_error with the key of the configuration and OpenSSL's reason, without any secret.
    static result<std::shared_ptr<const tls_context>> create(const tls_config& cfg);

    /// Returns the state of a new connection on the server's side; null if memory is short. It outlives this object.
    ssl_handle make_ssl() const { return ssl_handle(SSL_new(context_.get())); }
    /// Returns the certificates in PEM of those whose client certificates are accepted.
    const std::string& client_authorities() const { return client_authorities_; }

  private:
    struct context_deleter {
        void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    };
    using context_handle = std::unique_ptr<SSL_CTX, context_deleter>;
    tls_context(context_handle context, std::string client_authorities)
        : context_(std::move(context)), client_authorities_(std::move(client_authorities)) {}

    context_handle context_;
    std::string client_authorities_;
};

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
    /// A handshake's answer with the longest allowed chain of certificates fits, as do the alerts of a peer that reads
    /// nothing.
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
