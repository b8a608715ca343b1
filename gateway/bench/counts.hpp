#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::bench {

/// What a client of `fencegate bench` does in one operation.
enum class bench_work {
    pair,   ///< Acquires and releases a lease on a resource of its own.
    hot,    ///< The same on one resource for all clients; the latency is the wait for the lease.
    write,  ///< Sells one piece of an article of its own under a lease that it keeps.
    job,    ///< Acquires a lease on any article, sells one piece, releases: three calls.
    sale,   ///< The same in one call.
    late,   ///< A job that may sleep until its lease has expired, before it sells: the guard refuses that.
};
inline constexpr std::array<std::string_view, 6> bench_works{"pair", "hot", "write", "job", "sale", "late"};

struct bench_options {
    std::map<bench_work, unsigned> mix;        ///< What clients do, and how often in proportion.
    std::string conninfo;                      ///< PostgreSQL, for the table of the articles; empty: nothing is sold.
    unsigned clients = 16;                     ///< Connections, each with one request at a time.
    unsigned articles = 1000;                  ///< Articles that job, sale and late choose from.
    std::uint64_t stock = 1'000'000'000;       ///< Pieces of each article.
    std::chrono::milliseconds length{10'000};  ///< What is measured, after `warm_up`.
    std::chrono::milliseconds warm_up{1'000};
    std::chrono::milliseconds ttl{10'000};
    std::chrono::milliseconds wait{10'000};  ///< How long a client waits for a lease.
    std::string name;                        ///< Part of the names of resources and table; empty: a random one.
    std::optional<std::uint64_t> seed;       ///< Of the clients' choices; empty: random.
    bool keyed = false;                      ///< Each write and each acquisition has an Idempotency-Key.
};

using bench_clock = std::chrono::steady_clock;

/// What clients ask of a gateway.
enum class bench_step { acquire, write, release };

/// Counts of all clients: operations while it measures, answers and sales over the whole run.
class bench_counts {
  public:
    /// What the gateways answered about one article.
    struct sales {
        std::uint64_t sold = 0;
        std::uint64_t unknown = 0;  ///< The answer was lost, or says outcome_unknown: sold or not.
    };

    explicit bench_counts(std::size_t articles) : articles_(articles) {}

    void begin() { began_ = bench_clock::now(); }
    void end();

    /// Counts a complete operation.
    void add_operation(bench_work work, bench_clock::duration took);
    /// Counts an answer; status 0: the connection broke before it. One that is not `expected` is an error.
    void add_answer(bench_step step, unsigned status, bool expected);
    /// Counts a grant to a client, which is valid until `until`. Tests that its token is the highest of the resource,
    /// and that no other client has a valid lease on it; not where it is over already when its answer is read.
    void add_grant(const std::string& resource, std::int64_t token, bench_clock::time_point until);
    /// Counts the end of a grant: the client asks for its release.
    void end_grant(const std::string& resource) { last_grants_[resource].until = {}; }

    sales& article(std::size_t number) { return articles_[number]; }
    const std::vector<sales>& articles() const { return articles_; }
    std::uint64_t operations() const { return operations_; }
    std::uint64_t errors() const { return errors_; }
    /// Returns how often two clients held one lease, or a token was not above the one before.
    std::uint64_t violations() const { return overlaps_ + tokens_fallen_; }

    /// Returns the results, after end(): the members of a JSON object, without braces.
    std::string json() const;
    /// Returns the same as lines of text.
    std::string text() const;

  private:
    struct grant {
        std::int64_t token = 0;
        bench_clock::time_point until{};
    };
    double seconds() const { return std::max(1e-6, std::chrono::duration<double>(ended_ - began_).count()); }

    std::vector<sales> articles_;
    std::map<bench_work, std::vector<std::uint32_t>> latencies_us_;
    std::map<bench_step, std::map<unsigned, std::uint64_t>> statuses_;
    std::map<std::string, grant> last_grants_;   ///< Of each resource.
    bench_clock::time_point began_{}, ended_{};  ///< Nothing is measured before the one and after the other.
    std::uint64_t operations_ = 0, errors_ = 0, overlaps_ = 0, tokens_fallen_ = 0;
};

}  // namespace fencegate::bench
