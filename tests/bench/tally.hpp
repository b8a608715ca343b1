#pragma once

#include "connection.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bench {

/// The kind of a call; the report groups the statuses by it.
enum class step { acquire, write, release };
const char* to_string(step s);

/// The gateway's answers about the sales of one article, to compare with PostgreSQL afterwards.
struct sales {
    std::uint64_t accepted = 0;  ///< Answered 200.
    std::uint64_t unknown = 0;   ///< The answer was lost or said outcome_unknown: sold or not.
    std::uint64_t ordered = 0;   ///< Orders answered 200.
    std::uint64_t orders_unknown = 0;
};

/// Counts of a run. Operations are measured only inside the window; statuses are counted over the whole run.
class tally {
  public:
    void begin_window() { measuring_ = true; }
    void end_window() { measuring_ = false; }

    /// Counts a complete operation and its latency.
    void record_operation(clock::duration took);
    /// Counts an answer; one that is not `expected` is an error.
    void record_answer(step s, int status, bool expected);
    /// Counts a connection that broke during a request.
    void record_disconnect(step s);
    /// Counts a write that was answered 2xx.
    void record_write();
    /// Counts two clients that held one resource at once.
    void record_overlap() { ++overlaps_; }
    /// Counts a grant whose token is not above the previous one of the resource.
    void record_token_decrease() { ++token_decreases_; }

    std::uint64_t operations() const { return latencies_us_.size(); }
    std::uint64_t errors() const { return errors_; }
    std::uint64_t violations() const { return overlaps_ + token_decreases_; }

    /// Returns the members of the JSON line: rates, latencies, statuses by step. Sorts the latencies.
    std::string json(const std::string& operation, double seconds);
    /// Returns the line of text. Sorts the latencies.
    std::string summary(const std::string& operation, double seconds);

  private:
    double latency_percentile_ms(double share) const;

    bool measuring_ = false;
    std::vector<std::uint32_t> latencies_us_;
    std::uint64_t writes_ = 0;
    std::uint64_t requests_ = 0;
    std::uint64_t errors_ = 0;
    std::uint64_t overlaps_ = 0;
    std::uint64_t token_decreases_ = 0;
    std::map<step, std::map<int, std::uint64_t>> statuses_;  ///< 0: the connection broke.
};

}  // namespace bench
