#pragma once

#include <lockcore/lock_manager.hpp>
#include <runtime/attempt.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <set>
#include <string>
#include <vector>

namespace lockcore {

/// Looks for leases that should not be there, on one node after the other: keys without a ttl, and leases that only a
/// minority holds. What is in the making or just ending looks like the latter, so each is looked at twice.
///
/// Threads: on `io`'s. Cancel: (terminal) errc::cancelled.
class leak_scan {
  public:
    leak_scan(boost::asio::io_context& io, link_span links) : links_(links), timer_(io) {}

    boost::asio::awaitable<result<leak_report>> run();

    /// Between two parts of some 500 names.
    static constexpr milliseconds pause{250};
    /// Between the two looks: longer than an attempt and its undoing take.
    static constexpr milliseconds second_look{2'000};

  private:
    struct suspect {
        resource_name resource;
        nonce attempt;
    };
    boost::asio::awaitable<bool> walk(std::size_t node);
    boost::asio::awaitable<void> look_at(std::size_t node, std::vector<list_part::name> names);
    boost::asio::awaitable<std::vector<suspect>> held_by_minority(std::size_t node, std::vector<resource_name> names);
    boost::asio::awaitable<bool> sleep(milliseconds time);

    link_span links_;
    boost::asio::steady_timer timer_;
    leak_report report_;
    std::set<std::string, std::less<>> counted_;  ///< Nonces: a lease may stand on two nodes.
    static constexpr std::size_t counted_max = 10'000;
};

}  // namespace lockcore
