#pragma once

#include <gateway/config/tls_config.hpp>
#include <gateway/domain/failure.hpp>

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <utility>

namespace fencegate::http {

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

}  // namespace fencegate::http
