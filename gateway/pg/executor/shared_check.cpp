#include <gateway/pg/executor/shared_check.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace fencegate::pg {

using std::chrono::steady_clock;

/// One check and its callers.
class shared_check::round final : public caller_awaiting<void> {
  public:
    explicit round(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

    /// Returns whether the check has ended before `then`.
    bool has_ended_before(steady_clock::time_point then) const {
        const std::lock_guard lock(mutex_);
        return result_ && ended_ < then;
    }
    void add(caller_ptr caller) {
        {
            const std::lock_guard lock(mutex_);
            if (!result_) return callers_.push_back(std::move(caller));
        }
        caller->answer(*result_);
    }
    void answer(result<void> value) noexcept override {
        std::vector<caller_ptr> callers;
        {
            const std::lock_guard lock(mutex_);
            if (result_) return;
            result_ = std::move(value);
            ended_ = steady_clock::now();
            callers.swap(callers_);
        }
        for (const auto& caller : callers)
            caller->answer(*result_);
    }
    void give_up(bool) noexcept override { answer(unresponsive_failure(true)); }
    boost::asio::any_io_executor executor() const override { return executor_; }

  private:
    const boost::asio::any_io_executor executor_;
    mutable std::mutex mutex_;
    std::vector<caller_ptr> callers_;
    std::optional<result<void>> result_;  ///< Does not change once it is there.
    steady_clock::time_point ended_;
};

void shared_check::ask(caller_ptr caller, const std::function<void(caller_ptr)>& begin) {
    std::shared_ptr<round> joined;
    bool begins = false;
    {
        const std::lock_guard lock(mutex_);
        begins = !latest_ || latest_->has_ended_before(steady_clock::now() - kept_);
        if (begins) latest_ = std::make_shared<round>(caller->executor());
        joined = latest_;
    }
    joined->add(std::move(caller));
    if (begins) begin(std::move(joined));
}

}  // namespace fencegate::pg
