#pragma once

#include <gateway/bench/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fencegate::bench {

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
