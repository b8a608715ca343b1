#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/executor/job.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>

#include <atomic>
#include <memory>
#include <optional>

namespace fencegate::pg {

/// Lets a coroutine wait until its write is on disk, after it was answered that the write is visible. The first answer
/// counts.
///
/// Threads: answer() and give_up() from any thread; one coroutine calls wait(), once.
class durability_waiter final : public waiting_caller {
  public:
    explicit durability_waiter(const boost::asio::any_io_executor& executor) : signal_(executor, 1) {}

    /// Answers the waiting coroutine. Empty: the write is on disk.
    void answer(std::optional<failure> why);
    void give_up(bool unchanged) noexcept override;

    boost::asio::awaitable<std::optional<failure>> wait();

  private:
    std::atomic<bool> answered_{false};
    std::optional<failure> failure_;
    boost::asio::experimental::concurrent_channel<void(boost::system::error_code)> signal_;
};

/// A committed write. Other transactions see it; its caller must not be answered before it is on disk.
struct committed_write {
    write_outcome outcome;
    std::shared_ptr<durability_waiter> durability{};  ///< Null: the write is on disk.
};

/// Waits until the write is on disk.
///
/// Errors: storage_unavailable where a crash undid the write; nothing was changed. outcome_unknown where that could not
///         be found out.
/// Cancel: not supported.
boost::asio::awaitable<result<write_outcome>> await_durable(committed_write write);

}  // namespace fencegate::pg
