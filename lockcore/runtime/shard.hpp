#pragma once

#include <lockcore/lock_manager.hpp>
#include <redis/node_link.hpp>
#include <runtime/attempt.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <list>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockcore {

/// The resources of one thread: their queues, their attempts, and the connections to the nodes.
///
/// Threads: everything but status() and votes() on the thread of its io_context.
class shard final : public redis::link_observer {
  public:
    shard(const config& cfg, boost::asio::io_context& io, lock_manager::dependencies deps, bool reports_nodes);

    void open();
    void close();
    void refuse_new_leases();

    boost::asio::awaitable<result<lease>> acquire(acquire_request request);
    boost::asio::awaitable<result<lease>> renew(lease_claims claims, milliseconds ttl, std::string trace_id);
    boost::asio::awaitable<result<lease>> inspect(lease_claims claims);
    boost::asio::awaitable<result<release_outcome>> release(lease_claims claims, std::string trace_id);

    boost::asio::io_context& io() { return io_; }
    std::vector<node_status> status() const;

    std::string same_server(node_index asking, const std::string& run_id) const override;
    epoch highest_epoch() const override;
    void node_changed(node_index node, event_kind kind, const std::string& detail) override;

    /// A waiter that hears of no release looks again after this long at the latest: the holder may have let go on
    /// another gateway.
    static constexpr milliseconds look_again{100};

  private:
    /// Bits for nonces: from the operating system's generator.
    struct system_random final : random_source {
        std::uint64_t next() override;
        std::random_device device;
    };
    struct waiter {
        explicit waiter(boost::asio::io_context& io) : wake(io) {}
        boost::asio::steady_timer wake;  ///< Cancelled to wake: a release here, or this waiter became the head.
        bool woken = false;
    };
    struct wait_queue {
        std::list<waiter*> waiting;  ///< In order of arrival; the front contends.
        milliseconds retry_in{0};    ///< How long the holder's lease lasts, as far as the last attempt heard.
    };

    boost::asio::awaitable<result<lease>> try_once(const acquire_request& request);
    boost::asio::awaitable<result<lease>> wait_in_queue(acquire_request request);
    boost::asio::awaitable<void> sleep(waiter& w, monotonic_time until);
    boost::asio::awaitable<bool> leave_used_up_epoch(const acquire_request& request);
    void wake_head(const std::string& resource);
    void tick();

    redis::lease_call call_for(const lease_claims& claims) const;
    lease make_lease(lease_claims claims, milliseconds ttl, milliseconds validity, std::uint64_t renewals,
                     std::size_t granted) const;
    void emit(event_kind kind, const std::vector<resource_name>& resources, fencing_token token, const holder& by,
              const std::string& trace_id, std::string detail, milliseconds ttl);
    fencing_token hint_for(const std::vector<resource_name>& resources) const;
    void remember(const std::vector<resource_name>& resources, fencing_token token);
    milliseconds jittered(milliseconds at_most);

    const config& config_;
    boost::asio::io_context& io_;
    lock_manager::dependencies deps_;
    bool reports_nodes_;
    system_random random_;
    std::minstd_rand jitter_;
    std::vector<std::shared_ptr<redis::node_link>> links_;
    boost::asio::steady_timer ticker_;
    bool open_ = false, refusing_ = false;
    std::unordered_map<std::string, wait_queue> queues_;  ///< Only resources with waiters have an entry.
    std::size_t waiters_ = 0;
    std::vector<std::uint64_t>
        highest_token_;  ///< By bucket: the highest token heard of. 512 KiB, whatever the number of resources.
};

}  // namespace lockcore
