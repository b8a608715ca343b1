#pragma once

#include <gateway/config/config.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/routing/router.hpp>
#include <gateway/http/transport/request_observer.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fencegate::http {

/// Serves HTTP on one address: one listening socket a thread, between which the kernel spreads connections
/// (SO_REUSEPORT).
///
/// Threads:  all member functions from one thread, which is none of the loops'.
/// Lifetime: the observer outlives it. Destroyed before the io_contexts, and after they were stopped or after stop().
class server {
  public:
    /// `loops` run by one thread each; `memory` outlives them. Errors: std::invalid_argument (a key's hash),
    /// std::logic_error (a route twice).
    server(http_config cfg, const std::vector<api_key>& keys, std::vector<route> routes,
           std::vector<boost::asio::io_context*> loops, memory_budgets& memory, request_observer& observer);
    ~server();
    server(const server&) = delete;
    server& operator=(const server&) = delete;

    /// Binds and listens; nothing is accepted before start(). Errors:
    /// errc::internal_error with the address and the system's words.
    result<void> listen();
    void start();
    /// The port that is listened on, also where the configuration says 0. 0 before listen().
    std::uint16_t port() const;
    std::size_t connections() const;

    /// Accepts no more and closes idle connections; those with a request under way close after its answer. Returns at
    /// once.
    void stop_accepting();
    /// stop_accepting(), then waits for the requests under way; those that have not ended by `until` are cancelled.
    ///
    /// Out: false if some had to be cancelled. Blocks, until + 1 s at most; the loops have to run meanwhile.
    bool stop(std::chrono::steady_clock::time_point until);

  private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

}  // namespace fencegate::http
