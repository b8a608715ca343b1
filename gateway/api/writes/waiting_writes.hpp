#pragma once

#include <gateway/api/writes/write_body.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>
#include <gateway/pg/write/group_commit.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::api {

/// A write whose input was checked. It may wait for long, so it keeps no more of the request than it needs.
struct write_context {
    write_call call;
    http::request request;                                ///< Without body and headers.
    std::optional<lockcore::lease_claims> caller_claims;  ///< Of the caller's lease or token; empty for an own lease.
    std::optional<idempotency_key> key;
    std::shared_ptr<void> running;  ///< Entry in running_keys; released when destroyed.
};

/// What a one-shot write ended with.
struct one_shot_answer {
    result<pg::committed_write> written;
    std::optional<release_report> release{};
    /// Set if the answer may follow from data that are not on disk: a moment before the write (reveals_unproven_data).
    std::optional<std::chrono::steady_clock::time_point> unproven_since{};
};

/// A one-shot write, from before it acquires its lease until its answer.
///
/// Threads: not safe, but for notify(). Its members are used by the thread of `executor`, and by the write that has
///          taken it.
class one_shot_write {
  public:
    one_shot_write(boost::asio::any_io_executor executor, write_context given)
        : context(std::move(given)), wait_max(context.call.own_lease->wait), executor_(std::move(executor)) {}

    write_context context;
    const std::chrono::milliseconds wait_max;  ///< How long it may wait for its lease.
    std::optional<one_shot_answer> answer{};
    boost::asio::cancellation_signal end_acquisition{};  ///< Emitted on the thread of its caller.

    /// Lets await_answer() return.
    void notify() { answered_->try_send(boost::system::error_code()); }
    /// Waits for the answer of a write that was taken.
    ///
    /// Cancel: not supported.
    boost::asio::awaitable<void> await_answer();

  private:
    friend class waiting_writes;

    enum class state {
        waiting,
        withdrawn,  ///< It was granted or refused its lease, or its caller has hung up.
        taken       ///< Another write runs it.
    };

    boost::asio::any_io_executor executor_;
    std::string lease_key_;      ///< Equal for writes that may share a lease.
    std::uint64_t arrival_ = 0;  ///< Its number in the order of arrival.
    state state_ = state::withdrawn;
    /// Receives the notification. Only of a write that was taken.
    std::optional<boost::asio::experimental::concurrent_channel<void(boost::system::error_code)>> answered_{};
};
using one_shot_ptr = std::shared_ptr<one_shot_write>;

/// The one-shot writes of a gateway that acquire their leases. Each of them waits in the queue of its resources with a
/// place, a limit and a cancellation of its own. The first one that is granted its lease takes those of the same holder
/// on the same resources with it.
///
/// Threads: safe.
/// Limits:  a group has at most group_max writes, with as many operations as one transaction takes. A write that calls
///          a function, which may take any time, is a group of its own.
class waiting_writes {
  public:
    static constexpr std::size_t group_max = 64;

    /// Adds a write to those that wait, and withdraws it at the latest in the destructor.
    class registration {
      public:
        registration(waiting_writes& waiting, one_shot_ptr write) : waiting_(waiting), write_(std::move(write)) {
            waiting_.add(write_);
        }
        ~registration() { waiting_.withdraw(*write_); }
        registration(const registration&) = delete;
        registration& operator=(const registration&) = delete;

      private:
        waiting_writes& waiting_;
        one_shot_ptr write_;
    };

    /// Withdraws a write, so that no other one takes it any more. Out: false: another one has taken it, and answers it.
    bool withdraw(one_shot_write& write);
    /// Takes the writes that share the lease of a withdrawn write, and ends their acquisitions.
    ///
    /// Out: with `first`, in the order of arrival.
    std::vector<one_shot_ptr> take_group(const one_shot_ptr& first);

  private:
    void add(const one_shot_ptr& write);

    std::mutex mutex_;
    std::uint64_t added_ = 0;
    std::unordered_map<std::string, std::vector<one_shot_ptr>> by_lease_key_;  ///< In the order of arrival.
};

}  // namespace fencegate::api
