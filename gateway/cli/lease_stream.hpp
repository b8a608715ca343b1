#pragma once

#include <gateway/cli/boot_timer.hpp>
#include <gateway/cli/client.hpp>
#include <gateway/cli/lock_options.hpp>
#include <gateway/cli/lock_refusal.hpp>

#include <boost/json/object.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace fencegate::cli {

/// Acquires a lease, reads its events and releases it; the gateway renews it for as long as the connection is open.
class lease_stream {
  public:
    lease_stream(boost::asio::io_context& io, const client& gateway, const lock_options& options);

    /// Requests the lease until it is granted, refused for another reason than that another caller holds it, or the
    /// time to wait is over. Sends several requests, because the gateway limits how long one request waits; the first
    /// one does not wait. Later ones, and with `persistent` the first one too, are repeated after temporary failures,
    /// such as a restart of the gateway.
    ///
    /// Out:    empty when the lease was granted and its events can be read.
    /// Errors: throws gateway_unreachable when the first request got no response, unless `persistent` is set.
    boost::asio::awaitable<std::optional<lock_refusal>> open();

    /// Waits for the next event; empty when the stream ended or the connection broke.
    boost::asio::awaitable<std::optional<stream_event>> next_event() { return connection_->next_event(); }

    /// Returns the time from which the durations in this stream's first event count, or an earlier one: that at which
    /// the gateway sent the event, however long it travelled.
    boot_clock::time_point answered_at(const boost::json::object& lease) const;
    /// Returns the time until which the lease of this stream's first event is certainly valid.
    boot_clock::time_point valid_until(const boost::json::object& lease) const;

    struct confirmation {
        boot_clock::time_point valid_until{};  ///< Zero when the gateway gave no answer.
        bool lost = false;
    };
    /// Asks a majority of the nodes for the remaining validity of a lease.
    boost::asio::awaitable<confirmation> confirm(std::string lease_id, std::chrono::milliseconds timeout) const;
    /// Sends a request with the API key. Throws gateway_unreachable.
    boost::asio::awaitable<http_response> call(http_request request) const;

    /// Takes a further hold of the lease, which nobody renews: it keeps the lease for `length` after the end of this
    /// stream, even if this process is killed.
    ///
    /// Out:    the lease_id of the hold.
    /// Errors: the refusal is in `refusal`. Throws gateway_unreachable.
    boost::asio::awaitable<std::string> keep(std::chrono::milliseconds length,
                                             std::optional<lock_refusal>& refusal) const;

    /// As confirm, but blocks the thread until the answer or the timeout.
    confirmation confirm_now(const std::string& lease_id) const;

    /// Cancels the request of open(): a load balancer may not pass on that its connection ends. Blocks the thread until the
    /// gateway has answered, at most for cancel_timeout. If it fails, the gateway notices the end of the connection.
    void cancel() const;

    /// Releases a hold of the lease. Blocks the thread until the gateway has answered, so that the next caller finds
    /// the lease free when this process has ended. The end of the stream would say less: a load balancer ends it before
    /// the gateway has released the lease.
    void release(const std::string& lease_id) const;
    /// As release, but also raises the fence above the token. Out: exit_ok, or the exit code of the failure.
    int seal(const std::string& lease_id) const;

    /// Returns whether time is left to try again.
    bool may_wait() const { return time_left() > std::chrono::milliseconds{0}; }

    bool has_unread() { return connection_->has_unread(); }

  private:
    std::chrono::milliseconds time_left() const;
    boost::json::object make_body() const;
    http_request make_request(std::chrono::milliseconds wait) const;
    void report_once(const std::string& message);

    boost::asio::io_context& io_;
    const client& gateway_;
    const lock_options& options_;
    const std::string idempotency_key_;  ///< Keeps the place in the queue from one request to the next.
    const boot_clock::time_point started_at_ = boot_clock::now();
    std::unique_ptr<http_exchange> connection_;
    boot_clock::time_point sent_at_;
    std::chrono::milliseconds sent_wait_{0};  ///< How long the latest request may wait.
    bool waiting_;  ///< A response said that another caller holds the lease; failures are temporary from then on.
    bool reported_ = false;
};

/// Prints a line for the user on standard error.
void print_message(const lock_options& options, const std::string& message);

/// Returns a name for this process as the holder of a lease, which no other process has: `backup-3/4711/5f0c…`.
std::string make_holder_name();

/// Joins names of resources with commas.
std::string join_names(const std::vector<std::string>& names);

}  // namespace fencegate::cli
