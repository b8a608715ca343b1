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
    /// Counts a grant to a client, and tests its token, and that nobody else holds a lease on the resource.
    void add_grant(const std::string& resource, std::int64_t token);
    /// Counts the end of a grant: the client asks for its release.
    void end_grant(const std::string& resource) { --holders_[resource]; }
    /// Without this, the order of grants is not tested: while clients sleep past the end of their leases, answers are
    /// read in another order than they were sent.
    void test_grants(bool tested) { grants_tested_ = tested; }

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
    double seconds() const { return std::max(1e-6, std::chrono::duration<double>(ended_ - began_).count()); }

    std::vector<sales> articles_;
    std::map<bench_work, std::vector<std::uint32_t>> latencies_us_;
    std::map<bench_step, std::map<unsigned, std::uint64_t>> statuses_;
    std::map<std::string, std::int64_t> last_token_;  ///< Of each resource.
    std::map<std::string, int> holders_;
    bench_clock::time_point began_{}, ended_{};  ///< Nothing is measured before the one and after the other.
    std::uint64_t operations_ = 0, errors_ = 0, overlaps_ = 0, tokens_fallen_ = 0;
    bool grants_tested_ = true;
};

}  // namespace fencegate::bench
