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

/// How a coroutine waits until its write is on disk, when it was told before that others can see it. The first answer
/// counts.
///
/// Threads: answers come from any; one coroutine waits, once.
class durability_waiter final : public waiting_caller {
  public:
    explicit durability_waiter(const boost::asio::any_io_executor& executor) : signal_(executor, 1) {}

    /// Empty: it is on disk.
    void answer(std::optional<failure> why);
    void give_up(bool unchanged) noexcept override;

    boost::asio::awaitable<std::optional<failure>> wait();

  private:
    std::atomic<bool> answered_{false};
    std::optional<failure> failure_;
    boost::asio::experimental::concurrent_channel<void(boost::system::error_code)> signal_;
};

/// A write that was done. Others see it; whoever asked for it must not be told before it is on disk as well.
struct committed_write {
    write_outcome outcome;
    std::shared_ptr<durability_waiter> durability{};  ///< Empty: it is on disk.
};

/// Waits for the disk. Errors: storage_unavailable: the server crashed and the write is gone, nothing was changed; or
/// that is not to be found out: outcome_unknown. Cancel: none.
boost::asio::awaitable<result<write_outcome>> await_durable(committed_write write);

}  // namespace fencegate::pg
