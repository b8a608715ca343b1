#pragma once

#include <gateway/pg/executor/job.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

namespace fencegate::pg {

/// One check on behalf of all who ask for it while it is under way, and of those who ask soon afterwards.
///
/// Threads: any.
class shared_check {
  public:
    using caller_ptr = std::shared_ptr<caller_awaiting<void>>;

    /// `kept`: for how long the result of a check answers further callers.
    explicit shared_check(std::chrono::milliseconds kept) : kept_(kept) {}

    /// Answers `caller` with the result of the check that is under way or has just ended. If there is none, calls `begin`,
    /// which has to answer its argument.
    void ask(caller_ptr caller, const std::function<void(caller_ptr)>& begin);

  private:
    class round;

    const std::chrono::milliseconds kept_;
    std::mutex mutex_;
    std::shared_ptr<round> latest_;
};

}  // namespace fencegate::pg
