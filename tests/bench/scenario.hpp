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

/// What the clients do, over and over.
enum class mode {
    pair,   ///< Take and release a resource of the client's own.
    hot,    ///< All take and release one resource; the latency is the wait for it.
    write,  ///< Sell one piece of an article of the client's own, under a lease that is kept.
    job,    ///< Take an article at random, sell one piece, release.
    shot,   ///< The same in one call: a write with a lease of its own.
    order,  ///< A job, and an order for the piece under a lease of its own.
    stale,  ///< Jobs on few articles whose clients sometimes sleep past their lease before they sell.
};
std::optional<mode> mode_named(const std::string& name);
/// What one operation of the mode is called in the report: pairs, writes, jobs, orders.
const char* operation_of(mode m);
bool sells(mode m);

struct options {
    mode what = mode::job;
    std::size_t clients = 16;
    double seconds = 5;
    double warm_seconds = 1;
    std::size_t skus = 1000;
    std::uint64_t stock = 1'000'000'000;
    int ttl_ms = 10'000;
    int wait_ms = 10'000;
    double pause_share = 0.1;  ///< mode::stale: how many sales are preceded by a sleep of pause_ms.
    int pause_ms = 0;          ///< 0: one and a half times the ttl.
    bool keyed = false;        ///< Each write has an Idempotency-Key of its own.
    std::string prefix;        ///< Of the articles' and resources' names; new for each run.
    std::string headers;       ///< Sent with each request, each ended by CRLF.
    std::uint64_t seed = 0;
};

/// What all clients of a run share.
struct run {
    options how;
    tally counts;
    std::vector<sales> sold;  ///< One an article.
    std::map<std::string, std::uint64_t>
        last_token;                      ///< The highest token seen for a resource by a holder while it held.
    std::map<std::string, int> holders;  ///< Clients inside their validity, by resource.
    std::size_t next_to_stock = 0;       ///< Articles before it exist or are being made.
    std::uint64_t next_order = 0;
    std::uint64_t granted =
        0;                  ///< Leases given on articles and resources of the run, those for making the articles too.
    bool stocking = true;   ///< The articles are being made; nothing is measured.
    bool stopping = false;  ///< Begin no new operation.
};

struct call {
    step what = step::acquire;
    std::string method, path, body;
    std::string headers{};  ///< Beyond those of every call.
};

/// One client: what it sends next and what it makes of an answer. No sockets, no clock of its own.
class client {
  public:
    client(run& shared, std::size_t number);

    /// The next call; empty where the client sleeps (`asleep_until`) or is finished (`idle`).
    std::optional<call> next(clock::time_point now);
    void on_answer(const answer& got, clock::time_point now);
    /// The connection broke before the answer came.
    void on_broken();

    bool idle() const { return state_ == state::idle; }
    /// When it wants to be asked again, where it sleeps.
    std::optional<clock::time_point> asleep_until() const;

  private:
    enum class state { idle, acquire, pause, sell, release };
    /// An order takes its own lease after the article's.
    enum class target { article, order };

    void begin(clock::time_point now);
    void on_granted(const answer& got, clock::time_point now);
    void on_shot(const answer& got, clock::time_point now);
    void on_sold(const answer& got, clock::time_point now);
    void on_released(int status, clock::time_point now);
    void end_hold();
    void finish(clock::time_point now);
    void give_up();
    std::string sale() const;
    bool shoots() const { return run_.how.what == mode::shot && !stocking_; }

    run& run_;
    std::size_t number_;
    std::mt19937_64 random_;
    state state_ = state::idle;
    target target_ = target::article;
    step last_call_ = step::acquire;
    bool stocking_ = false;
    std::size_t article_ = 0;
    std::uint64_t order_ = 0;
    std::uint64_t writes_ = 0;
    std::string resource_;
    std::string lease_id_;
    bool holding_ = false;
    bool failed_ = false;  ///< Something in the operation was refused: it does not count as done.
    clock::time_point valid_until_;
    clock::time_point began_;
    clock::time_point wake_;
};

}  // namespace bench
