#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/message.hpp>
#include <gateway/http/routing/dispatcher.hpp>
#include <gateway/http/transport/tls_channel.hpp>
#include <gateway/limits/limiter.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fencegate::http {

/// Serves HTTP on one address, with one listening socket for each thread; the kernel distributes connections among them
/// (SO_REUSEPORT).
///
/// Threads:  all member functions from one thread that runs none of the loops.
/// Lifetime: the observer, the limiter and the io_contexts outlive it. It is destroyed after stop(), or when the
///           threads of the io_contexts have ended.
class server {
  public:
    /// In:     one thread runs each of `loops`; `memory` outlives them; `tls`: null for HTTP without TLS.
    /// Errors: std::invalid_argument (a key's hash is malformed) · std::logic_error (two equal routes).
    server(http_config cfg, const auth_config& auth, std::vector<route> routes,
           std::vector<boost::asio::io_context*> loops, memory_budgets& memory, limits::limiter& limiter,
           request_observer& observer, std::shared_ptr<const tls_context> tls = nullptr);
    ~server();
    server(const server&) = delete;
    server& operator=(const server&) = delete;

    /// Binds and listens; no connection is accepted before start().
    ///
    /// Errors: errc::internal_error with the address and the system's message.
    result<void> listen();
    void start();
    /// Returns the port that it listens on, also if the configuration says 0; 0 before listen().
    std::uint16_t port() const;
    std::size_t connections() const;

    /// Replaces what can change without a restart.
    /// - New requests: `auth`, and the allowed hosts of `cfg`. New connections: `tls`.
    /// - Requests under way keep the rights with which they began.
    /// - Streamed answers whose credential is no longer accepted end. So do connections with a client certificate, if
    ///   the certificate authorities have changed.
    ///
    /// Returns when every thread uses all of it, and the thread that requested the keys of a replaced `jwks_url` has
    /// ended.
    ///
    /// Errors:  errc::invalid_request with the setting: the keys of another `jwks_url` could not be requested ·
    ///          std::invalid_argument (a key's hash is malformed). Nothing has changed then.
    /// Timeout: that of authenticator's constructor.
    /// Threads: one at a time, none of those that serve; they have to run.
    result<void> reload(const auth_config& auth, const http_config& cfg, const std::shared_ptr<const tls_context>& tls);

    /// From now on closes each connection after its next answer, which says so (`Connection: close`), so that callers
    /// connect anew. Returns at once.
    void close_after_answers();
    /// Stops accepting and closes idle connections; connections with a request under way close after its answer.
    /// Returns at once.
    void stop_accepting();
    /// Calls stop_accepting(), waits for the requests under way, and cancels those that have not ended by `until`.
    /// Blocks until `until` + 1 s at most; the loops have to run meanwhile.
    ///
    /// Out: false if it had to cancel some.
    bool stop(std::chrono::steady_clock::time_point until);

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace fencegate::http
