#pragma once

#include <lockcore/lock_manager.hpp>
#include <proto/core.hpp>
#include <redis/connection.hpp>
#include <runtime/turn_queue.hpp>

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockcore {

/// An event that happens once, and that one coroutine may await. fire() posts the coroutine; it never resumes it inside
/// the call.
///
/// Threads: not safe; fire() and wait() run on the thread of one shard.
/// Cancel:  wait() cannot be cancelled; every event fires within a limited time.
class one_shot_event {
  public:
    bool has_fired() const { return fired_; }

    void fire() {
        if (std::exchange(fired_, true) || !waiter_) return;
        // Shared, for a posted function object must be copyable here. Constructed and not assigned, for the move
        // assignment of any_completion_handler recurses without end in Boost 1.81.
        auto waiter = std::make_shared<boost::asio::any_completion_handler<void()>>(std::move(*waiter_));
        waiter_.reset();
        boost::asio::post(executor_, [waiter] { std::move (*waiter)(); });
    }

    /// Waits until the event fires. May be called once, and only while has_fired() is false.
    boost::asio::awaitable<void> wait() {
        executor_ = co_await boost::asio::this_coro::executor;
        // Without a cancellation slot of its own, the handler leaves that of the coroutine to others (shard::call).
        auto start = [this](auto handler) {
            waiter_.emplace(boost::asio::bind_cancellation_slot(boost::asio::cancellation_slot(), std::move(handler)));
        };
        co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(std::move(start),
                                                                                           boost::asio::use_awaitable);
    }

  private:
    bool fired_ = false;
    boost::asio::any_io_executor executor_;
    std::optional<boost::asio::any_completion_handler<void()>> waiter_;
};

/// Drives the core of one thread: makes inputs of calls, answers and timers, and performs the actions that the core
/// returns. It decides nothing about a lease; the listing of all leases and the search for leaked ones, which are
/// reports, are written here as sequences of calls. A lease on several resources belongs to the shard of the first of
/// them.
///
/// Threads: everything but status(), status_of() and waiters() on the thread of its io_context.
class shard {
  public:
    /// A call until the core has answered it.
    struct pending_call {
        one_shot_event done;
        std::optional<call_result> outcome;
    };

    /// `leads`: this shard reports the quarantines, which every shard sees, and copies leases to nodes.
    /// `on_state_change`: called when a node's state changes for this shard.
    shard(const config& cfg, boost::asio::io_context& io, lock_manager::dependencies deps, bool leads,
          std::function<void(node_index)> on_state_change);
    ~shard();

    void open();
    void close();
    void refuse_new_leases() { deliver(input::refuse_new_leases{}); }
    void raise_hints(epoch floor) { deliver(input::raise_hints{floor}); }
    void reopen(lease_claims claims, const close_outcome& closed) { deliver(input::reopen{std::move(claims), closed}); }

    /// Passes a call to the core and waits for its answer, of the type that core_io.hpp names for the input. A
    /// cancellation is passed on, and acts as the core says for this call.
    template <class Result, class Input>
    boost::asio::awaitable<Result> call(Input what);
    /// Passes a call to the core without waiting for its answer.
    template <class Input>
    std::shared_ptr<pending_call> start_call(Input what);

    /// Waits for the answer to a find_lease.
    static boost::asio::awaitable<result<found_lease>> await_found(std::shared_ptr<pending_call> search);
    boost::asio::awaitable<result<std::optional<live_lease>>> find_lease(resource_name resource,
                                                                         std::optional<nonce> sharing);
    boost::asio::awaitable<result<resource_leases>> find_leases(resource_name resource, std::size_t limit);
    boost::asio::awaitable<result<lease_page>> list_leases(lease_query query);
    boost::asio::awaitable<result<leak_report>> find_leaks();
    boost::asio::awaitable<waiting_overview> list_waiters(std::string prefix);

    boost::asio::io_context& io() { return io_; }
    std::size_t nodes() const { return connections_.size(); }
    std::vector<node_status> status() const;
    node_status status_of(node_index node) const;
    /// Returns how many callers wait at this shard.
    std::size_t waiters() const { return waiter_count_.load(std::memory_order_relaxed); }

  private:
    /// Random bits from the generator of the operating system, for nonces.
    struct system_random final : random_source {
        std::uint64_t next() override;
        std::random_device device;
    };
    struct node_connection {
        std::shared_ptr<redis::connection> transport;
        connection_number number{};
    };

    /// Lets the core take a step, and performs its actions; during a step, after it.
    /// noexcept: after a step that was not performed whole the shard can't go on, so that the process ends.
    void deliver(core_input&& what) noexcept;
    void take_step(core_input&& what);
    void perform(action::open_connection& a);
    void perform(action::close_connection& a);
    void perform(action::send_batch& a);
    void perform(action::ask_node& a);
    void perform(action::ask_register& a);
    void perform(action::answer& a);
    void perform(action::record& a);
    void perform(action::node_changed& a);
    boost::asio::awaitable<register_response> query_register(register_request::any asked);
    void tick(boost::system::error_code e);
    void set_timer();
    /// Looks the leases of these attempts up, which share a resource, and adds those that a majority has.
    ///
    /// Errors: errc::no_quorum.
    boost::asio::awaitable<result<void>> add_sharing(const resource_name& resource, std::span<const nonce> attempts,
                                                     std::vector<live_lease>& out);
    void publish_status(node_index node);

    const config& config_;
    boost::asio::io_context& io_;
    lock_manager::dependencies deps_;
    std::function<void(node_index)> on_state_change_;
    system_random random_;
    core core_;
    std::vector<node_connection> connections_;
    std::vector<std::shared_ptr<redis::release_subscription>> subscriptions_;
    boost::asio::steady_timer ticker_, timer_;
    monotonic_time timer_at_ = monotonic_time::max();
    bool open_ = false, stepping_ = false, flush_posted_ = false;
    std::deque<core_input> delayed_;  ///< What happened during a step.
    std::uint64_t last_call_ = 0;
    std::unordered_map<call_id, std::shared_ptr<pending_call>> pending_;
    std::atomic<std::size_t> waiter_count_{0};
    mutable std::mutex status_mutex_;
    std::vector<node_status> status_;
    bool finding_leaks_ = false;
    turn_queue listings_;
    /// Expires with this shard, for functions that the io_context may call later.
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

template <class Input>
std::shared_ptr<shard::pending_call> shard::start_call(Input what) {
    const call_id id{++last_call_};
    what.call = id;
    auto pending = std::make_shared<pending_call>();
    pending_.emplace(id, pending);
    deliver(std::move(what));
    return pending;
}

template <class Result, class Input>
boost::asio::awaitable<Result> shard::call(Input what) {
    namespace this_coro = boost::asio::this_coro;
    // A cancellation reaches the core as an input, instead of ending the wait by an exception.
    const bool throws_if_cancelled = co_await this_coro::throw_if_cancelled();
    co_await this_coro::throw_if_cancelled(false);
    const boost::asio::cancellation_state cancellation = co_await this_coro::cancellation_state;
    auto slot = cancellation.slot();

    const std::shared_ptr<pending_call> pending = start_call(std::move(what));
    const call_id id{last_call_};
    if (cancellation.cancelled() != boost::asio::cancellation_type::none) deliver(input::cancel{id});
    if (!pending->done.has_fired()) {
        if (slot.is_connected())
            slot.assign([this, id](boost::asio::cancellation_type) { deliver(input::cancel{id}); });
        co_await pending->done.wait();
        if (slot.is_connected()) slot.clear();
    }
    co_await this_coro::throw_if_cancelled(throws_if_cancelled);
    co_return std::get<Result>(std::move(*pending->outcome));
}

}  // namespace lockcore
