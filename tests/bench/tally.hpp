#pragma once

#include "connection.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bench {

/// What a call of a scenario is about; names the column of statuses in the report.
enum class step { acquire, write, release };
const char* to_string(step s);

/// What the gateway said about the pieces of one article, to be compared with PostgreSQL afterwards.
struct sales {
    std::uint64_t accepted = 0;  ///< Answered 200.
    std::uint64_t unknown = 0;   ///< The answer was lost, or said outcome_unknown: sold or not.
    std::uint64_t ordered = 0;   ///< Orders answered 200.
    std::uint64_t orders_unknown = 0;
};

/// Counts of a run. Operations are measured inside the window only; statuses and sales over the whole run.
class tally {
  public:
    void begin_window() { measuring_ = true; }
    void end_window() { measuring_ = false; }

    /// A scenario's operation came to its end as it should.
    void done(clock::duration took);
    /// An answer; `expected` says whether the scenario knows what to do with its status.
    void answered(step s, int status, bool expected);
    /// A connection broke under a request.
    void broken(step s);
    /// An answer 2xx to a write, in the window.
    void wrote();
    /// Two clients held one resource at once.
    void overlapped() { ++overlaps_; }
    /// A grant's token was not above the one that the same client had for the resource before.
    void token_fell() { ++tokens_fallen_; }

    std::uint64_t operations() const { return latencies_us_.size(); }
    std::uint64_t errors() const { return errors_; }
    std::uint64_t violations() const { return overlaps_ + tokens_fallen_; }

    /// Members for the JSON line: rates, latencies, statuses by step. Sorts the latencies.
    std::string json(const std::string& operation, double seconds);
    std::string for_people(const std::string& operation, double seconds);

  private:
    double milliseconds_at(double share) const;

    bool measuring_ = false;
    std::vector<std::uint32_t> latencies_us_;
    std::uint64_t writes_ = 0;
    std::uint64_t requests_ = 0;
    std::uint64_t errors_ = 0;
    std::uint64_t overlaps_ = 0;
    std::uint64_t tokens_fallen_ = 0;
    std::map<step, std::map<int, std::uint64_t>> statuses_;  ///< 0: the connection broke.
};

}  // namespace bench
