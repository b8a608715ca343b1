#pragma once

#include <gateway/bench/counts.hpp>
#include <gateway/cli/client.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>

namespace fencegate::bench {

/// What all clients of a run share. All of them run in one thread.
struct bench_run {
    const bench_options& options;
    const cli::client& gateways;
    boost::asio::ssl::context tls;
    bench_counts counts;
    bool stopping = false;    ///< Clients begin no new operation.
    unsigned unfinished = 0;  ///< Clients that have not ended yet.
};

/// One client: repeats operations on one keep-alive connection until the run is stopping.
class bench_client {
  public:
    bench_client(bench_run& run, boost::asio::io_context& context, unsigned number);
    ~bench_client();
    bench_client(const bench_client&) = delete;
    bench_client& operator=(const bench_client&) = delete;

    /// Runs until the run is stopping and the operation that was begun then has ended. Releases what it holds.
    boost::asio::awaitable<void> run();

  private:
    class connection;
    struct answer {
        unsigned status = 0;  ///< 0: the connection broke.
        boost::json::object body;
    };
    struct lease {
        std::string id;
        std::string resource;
        bench_clock::time_point valid_until;
    };

    bench_work choose_work();
    boost::asio::awaitable<void> perform(bench_work work);
    boost::asio::awaitable<void> hold(bench_work work, std::string resource);
    boost::asio::awaitable<void> write_under_kept_lease();
    boost::asio::awaitable<void> release_kept();
    boost::asio::awaitable<void> do_job(bench_work work, unsigned article);
    boost::asio::awaitable<void> sell_in_one_call(unsigned article);

    boost::asio::awaitable<std::optional<lease>> acquire(bench_work work, std::string resource);
    /// Out: whether it was released.
    boost::asio::awaitable<bool> release(bench_work work, lease held);
    /// Sends a write that sells one piece; `authority`: its member "lease_id" or "lease".
    ///
    /// Out: whether it was applied.
    boost::asio::awaitable<bool> sell(bench_work work, unsigned article, std::string authority);
    boost::asio::awaitable<answer> call(std::string method, std::string target, std::string body);
    boost::asio::awaitable<void> sleep(bench_clock::duration time);
    std::string make_lease_members(const std::string& resource) const;
    std::string resource_of(unsigned article) const;

    bench_run& run_;
    const unsigned number_;
    std::mt19937_64 random_;
    boost::asio::steady_timer timer_;
    std::unique_ptr<connection> connection_;
    std::optional<lease> kept_;  ///< Of bench_work::write.
    std::uint64_t calls_ = 0;    ///< With an Idempotency-Key.
};

}  // namespace fencegate::bench
