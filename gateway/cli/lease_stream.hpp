#pragma once

#include <gateway/cli/boot_timer.hpp>
#include <gateway/cli/client.hpp>
#include <gateway/cli/lock_options.hpp>

#include <boost/json/object.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace fencegate::cli {

/// Why no lease was granted.
struct lock_refusal {
    int exit_code;
    std::string text;  ///< For people.
};

/// A lease that a gateway keeps for as long as this listens to its events.
class lease_stream {
  public:
    lease_stream(boost::asio::io_context& io, const client& gateway, const lock_options& wanted);

    /// Asks for the lease until it is granted, or refused for another reason than that somebody holds it, or the time
    /// to wait is over: again and again, for the gateway limits how long one request waits. The first request does not
    /// wait; what fails behind that (a gateway that restarts) is tried again. Throws unreachable where the first got no
    /// answer.
    ///
    /// Out: nothing once the events of a lease come.
    boost::asio::awaitable<std::optional<lock_refusal>> open();

    /// Empty at the end, also where the connection breaks.
    boost::asio::awaitable<std::optional<stream_event>> next_event() { return connection_->next_event(); }

    /// Until when a lease of this stream's first event is ours for certain.
    boot_clock::time_point valid_until(const boost::json::object& lease) const;

    /// Asks a majority of the nodes what is left of a lease.
    struct confirmation {
        boot_clock::time_point valid_until{};
        bool lost = false;
    };
    boost::asio::awaitable<confirmation> confirm(std::string lease_id, std::chrono::milliseconds within) const;
    /// The same, and nothing else happens meanwhile.
    confirmation confirm_now(const std::string& lease_id) const;

    /// Whether time is left to ask again.
    bool may_wait() const { return time_left() > std::chrono::milliseconds{0}; }

    bool has_unread() { return connection_->has_unread(); }

    /// Tells the gateway that the lease is no longer wanted; its last events can still be read.
    void finish() { connection_->finish(); }

  private:
    std::chrono::milliseconds time_left() const;
    request make_request(std::chrono::milliseconds wait) const;
    void report_once(const std::string& what);

    boost::asio::io_context& io_;
    const client& gateway_;
    const lock_options& wanted_;
    const std::string idempotency_key_;  ///< Under which the gateway keeps our place from one request to the next.
    const boot_clock::time_point began_ = boot_clock::now();
    std::unique_ptr<http_exchange> connection_;
    boot_clock::time_point asked_at_;
    bool waiting_ = false;  ///< An answer said that somebody holds it.
    bool reported_ = false;
};

/// A line for people on standard error.
void say(const std::string& what);

/// Names of resources, with commas.
std::string joined(const std::vector<std::string>& names);

}  // namespace fencegate::cli
