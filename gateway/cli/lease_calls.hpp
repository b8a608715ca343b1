#pragma once

#include <gateway/cli/client.hpp>
#include <gateway/cli/lock_options.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json/object.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fencegate::cli {

/// What a gateway has said about a lease that was granted or renewed.
struct lease_state {
    std::string lease_id;
    std::string resource;  ///< Empty: several.
    std::int64_t token = 0;
    std::chrono::milliseconds ttl{};
    boot_clock::time_point sent_at;        ///< When the request was sent.
    boot_clock::time_point answered_at;    ///< When the gateway sent the answer, or earlier.
    boot_clock::time_point valid_until;    ///< The lease is certainly valid until then.
    std::chrono::milliseconds max_hold{};  ///< The longest time that the lease may be held in all; 0: not known.
};

/// The calls about a lease: acquires, renews, watches and releases it, at any of the gateways. The calls of coroutines
/// run on threads of their own, and end with this object.
class lease_calls {
  public:
    lease_calls(boost::asio::io_context& io, const client& gateway, const lock_options& options);

    /// Requests the lease until it is granted, refused for another reason than that another caller holds it, or the
    /// time to wait is over. Sends several requests, because the gateway limits how long one request waits; the first
    /// one does not wait. Later ones, and with `persistent` the first one too, are repeated after temporary failures,
    /// such as a restart of the gateway.
    ///
    /// Out:    empty when the lease was granted: granted() has it.
    /// Errors: throws gateway_unreachable when no gateway answered the first request, unless `persistent` is set.
    boost::asio::awaitable<std::optional<lock_refusal>> acquire();
    const lease_state& granted() const { return granted_; }
    /// Returns what cancels the latest request of acquire(), at any gateway; empty if it was answered. For a caller
    /// that gives up: a load balancer may not pass on that its connection has ended.
    std::function<void()> withdrawal() const;

    struct renewal {
        enum class outcome {
            renewed,
            lost,
            exhausted,  ///< The lease is live and can't be renewed again.
            failed,     ///< No answer, or one that does not say whether the lease is live.
        };
        outcome result = outcome::failed;
        lease_state lease;   ///< Of `renewed`.
        std::string reason;  ///< Of the others; for the user.
    };
    /// Renews a lease by one request to one gateway; after a failure the next call asks the next gateway.
    boost::asio::awaitable<renewal> renew(std::string lease_id, std::chrono::milliseconds ttl,
                                          std::chrono::milliseconds timeout);
    /// As renew, at any gateway, and blocks the thread until the answer or the timeout.
    renewal renew_now(const std::string& lease_id, std::chrono::milliseconds ttl) const;

    /// Waits for the end of a lease, over broken connections and at any gateway, while `wanted` returns true.
    ///
    /// Out: why the lease ended; empty if the gateway refuses the watch, or it is not wanted any more.
    boost::asio::awaitable<std::string> watch(std::string lease_id, std::function<bool()> wanted);

    /// Sends a request with the API key. Throws gateway_unreachable.
    boost::asio::awaitable<http_response> call(http_request request);

    /// Takes a further hold of the lease, which nobody renews: it keeps the lease for `length`, even if this process is
    /// killed.
    ///
    /// Out:    the lease_id of the hold.
    /// Errors: the refusal is in `refusal`. Throws gateway_unreachable.
    boost::asio::awaitable<std::string> keep(std::chrono::milliseconds length, std::optional<lock_refusal>& refusal);

    /// Releases a hold of the lease. Blocks the thread until a gateway has answered, so that the next caller finds
    /// the lease free when this process has ended. Repeats the request for a short time, such as that of a restart, but
    /// not after `valid_until`.
    void release(const std::string& lease_id, boot_clock::time_point valid_until) const;
    /// As release, but also raises the fence above the token. Out: exit_ok, or the exit code of the failure.
    int seal(const std::string& lease_id) const;

    /// Returns whether time is left to try again.
    bool may_wait() const { return time_left() > std::chrono::milliseconds{0}; }

  private:
    std::chrono::milliseconds time_left() const;
    boost::json::object make_body() const;
    http_request make_request(std::chrono::milliseconds wait) const;
    void report_once(const std::string& message);
    boost::asio::awaitable<http_response> call_once(http_request request, transfer_options options);
    boost::asio::awaitable<http_response> run_on_thread(std::function<http_response(std::stop_token)> call);

    boost::asio::io_context& io_;
    const client& gateway_;
    const lock_options& options_;
    const std::string idempotency_key_;  ///< Keeps the place in the queue from one request to the next.
    const boot_clock::time_point started_at_ = boot_clock::now();
    lease_state granted_;
    bool unanswered_ = false;                 ///< The latest request has no answer.
    std::chrono::milliseconds sent_wait_{0};  ///< How long it may wait.
    bool waiting_;  ///< A response said that another caller holds the lease; failures are temporary from then on.
    bool reported_ = false;
    std::list<std::jthread> threads_;  ///< Of the calls; the end of this object stops them first.
};

/// Releases a lease whose process has died. If that fails, it ends with its ttl.
void release_orphaned_lease(const client& gateway, const std::string& lease_id);

/// Prints a line for the user on standard error.
void print_message(const lock_options& options, const std::string& message);

/// Returns a name for this process as the holder of a lease, which no other process has: `backup-3/4711/5f0c…`.
std::string make_holder_name();

/// Joins names of resources.
std::string join_names(const std::vector<std::string>& names, std::string_view separator = ",");
/// Names the resources that are wanted, for the user.
std::string wanted_names(const lock_options& options);

}  // namespace fencegate::cli
