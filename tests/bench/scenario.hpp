#pragma once

#include "connection.hpp"
#include "tally.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace bench {

/// The operation that the clients repeat.
enum class workload {
    pair,   ///< Acquire and release a lease on a resource of the client's own.
    hot,    ///< All acquire and release a lease on one resource; the latency is the wait for it.
    write,  ///< Sell one piece of an article of the client's own, with a lease that the client keeps.
    job,    ///< Acquire a lease on a random article, sell one piece, release.
    shot,   ///< The same in one call: a write with a lease of its own.
    order,  ///< A job, then an order for the piece with a second lease.
    stale,  ///< Jobs on few articles; clients sometimes sleep until their lease has expired before they sell.
};
std::optional<workload> find_workload(const std::string& name);
/// Returns the name of the operations in the report: pairs, writes, jobs, orders.
const char* operation_name(workload mode);
bool sells_articles(workload mode);

struct load_options {
    workload mode = workload::job;
    std::size_t clients = 16;
    double seconds = 5;
    double warm_seconds = 1;
    std::size_t skus = 1000;
    std::uint64_t stock = 1'000'000'000;
    int ttl_ms = 10'000;
    int wait_ms = 10'000;
    double pause_share = 0.1;  ///< workload::stale: the share of sales that follow a sleep of pause_ms.
    int pause_ms = 0;          ///< 0: one and a half times the ttl.
    bool keyed = false;        ///< Each write has an Idempotency-Key of its own.
    std::string prefix;        ///< Prefix of the names of articles and resources; new for each run.
    std::string headers;       ///< Headers of each request, each ending in CRLF.
    std::uint64_t seed = 0;
};

/// The state that all clients of a run share.
struct run {
    load_options options;
    tally counts;
    std::vector<sales> sold;                          ///< One entry per article.
    std::map<std::string, std::uint64_t> last_token;  ///< By resource: the highest token granted.
    std::map<std::string, int> holders;               ///< By resource: the clients that hold its lease.
    std::size_t next_article_to_create = 0;           ///< Articles before this index exist or are being created.
    std::uint64_t next_order = 0;
    /// Leases granted on articles and resources of the run, including those for creating the articles.
    std::uint64_t granted = 0;
    bool creating_articles = true;  ///< The articles are being created; nothing is measured.
    bool stopping = false;          ///< Clients begin no new operation.
};

struct call {
    step kind = step::acquire;
    std::string method, path, body;
    std::string headers{};  ///< In addition to those of every call.
};

/// One client as a state machine: decides what to send next and handles answers. Uses no sockets and reads no clock.
class client {
  public:
    client(run& shared, std::size_t number);

    /// Returns the next call; empty while the client sleeps (`asleep_until`) or is idle.
    std::optional<call> next(clock::time_point now);
    void on_answer(const answer& response, clock::time_point now);
    /// Handles a connection that broke before the answer.
    void on_broken();

    bool is_idle() const { return state_ == state::idle; }
    /// Returns when a sleeping client continues; empty if it does not sleep.
    std::optional<clock::time_point> asleep_until() const;

  private:
    enum class state { idle, acquire, pause, sell, release };
    /// What the current lease is for: workload::order acquires a second lease for the order.
    enum class target { article, order };

    void begin(clock::time_point now);
    void on_granted(const answer& response, clock::time_point now);
    void on_single_call_write(const answer& response, clock::time_point now);
    void on_sold(const answer& response, clock::time_point now);
    void on_released(int status, clock::time_point now);
    void end_hold();
    void finish(clock::time_point now);
    void abandon_operation();
    std::string build_operations() const;
    bool writes_in_one_call() const { return run_.options.mode == workload::shot && !creating_article_; }

    run& run_;
    std::size_t number_;
    std::mt19937_64 random_;
    state state_ = state::idle;
    target target_ = target::article;
    step last_call_ = step::acquire;
    bool creating_article_ = false;
    std::size_t article_ = 0;
    std::uint64_t order_ = 0;
    std::uint64_t writes_ = 0;
    std::string resource_;
    std::string lease_id_;
    bool holding_ = false;
    bool failed_ = false;  ///< A call of the operation was refused: the operation does not count.
    clock::time_point valid_until_;
    clock::time_point began_;
    clock::time_point wake_;
};

}  // namespace bench
