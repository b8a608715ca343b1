#pragma once

#include <lockcore/lock_manager.hpp>
#include <proto/core_io.hpp>

#include <boost/asio/steady_timer.hpp>

#include <set>
#include <string>
#include <vector>

namespace lockcore {

class shard;

/// Looks for leaked leases on one node after the other: keys without a ttl, and leases that only a minority holds. A
/// lease that is just being granted or released is on a minority too, so each is checked twice.
///
/// Threads: the thread of the shard.
/// Cancel:  (terminal) errc::cancelled.
class leak_scan {
  public:
    explicit leak_scan(shard& leases);

    boost::asio::awaitable<result<leak_report>> run();

    /// The time between two parts of about 500 names.
    static constexpr milliseconds part_interval{250};
    /// How long one node is scanned: enough for 7 million leases. A faulty node may list its names without end.
    static constexpr std::chrono::hours node_time_max{1};
    /// The time between the two checks: longer than an attempt and its undoing take.
    static constexpr milliseconds recheck_delay{2'000};

  private:
    struct suspect {
        resource_name resource;
        nonce attempt_id;
    };
    /// Scans all keys of a node. Returns false if it was cancelled.
    boost::asio::awaitable<bool> scan_node(std::size_t node);
    boost::asio::awaitable<void> check_names(std::size_t node, std::vector<list_part::name> names);
    /// Returns the leases that the node has and no majority.
    boost::asio::awaitable<std::vector<suspect>> find_minority_leases(std::size_t node,
                                                                      std::vector<resource_name> names);
    /// Returns false if it was cancelled.
    boost::asio::awaitable<bool> sleep(milliseconds time);

    shard& leases_;
    boost::asio::steady_timer timer_;
    leak_report report_;
    std::set<std::string, std::less<>> counted_;  ///< Nonces, for a lease may be on two nodes.
    static constexpr std::size_t counted_max = 10'000;
};

}  // namespace lockcore
