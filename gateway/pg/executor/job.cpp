#include <gateway/pg/executor/job.hpp>

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>
#include <vector>

namespace fencegate::pg {

using std::chrono::steady_clock;

failure unresponsive_failure(bool unchanged) {
    if (unchanged) return unavailable_because(unresponsive_cause);
    failure out = unavailable("PostgreSQL does not answer; whether the change was made is not known.");
    out.outcome_unknown = true;
    return out;
}

/// One check and its callers.
class shared_check::round final : public caller_awaiting<void> {
  public:
    explicit round(caller_ptr first) { callers_.push_back(std::move(first)); }

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
    /// None: a round outlives the callers, and may outlive their io_context.
    boost::asio::any_io_executor executor() const override { return {}; }

  private:
    mutable std::mutex mutex_;
    std::vector<caller_ptr> callers_;
    std::optional<result<void>> result_;  ///< Does not change once it is there.
    steady_clock::time_point ended_;
};

void shared_check::ask(caller_ptr caller, const std::function<void(caller_ptr)>& begin) {
    std::shared_ptr<round> begun, under_way;
    {
        const std::lock_guard lock(mutex_);
        if (latest_ && !latest_->has_ended_before(steady_clock::now() - reuse_time_)) {
            under_way = latest_;
        } else {
            begun = std::make_shared<round>(std::move(caller));
            latest_ = begun;
        }
    }
    if (under_way) return under_way->add(std::move(caller));
    try {
        begin(begun);
    } catch (const std::exception&) {
        begun->answer(unresponsive_failure(true));  // the callers who have joined wait for it
    }
}

failure deadline_passed_failure() {
    return unavailable("The call's deadline passed before PostgreSQL could begin; nothing was changed.");
}

failure queue_full_failure() {
    failure out = make_failure(errc::overloaded, "Too many calls wait for PostgreSQL.");
    out.retry_after = retry_after_unavailable;
    return out;
}

const std::string& job::principal() const {
    static const std::string gateway;
    return gateway;
}

failure lost_failure(const session_lost& lost, effect work_effect) {
    if (work_effect != effect::by_statement) return unavailable_because(lost.cause);
    failure out = unavailable("The connection to PostgreSQL broke; whether the change was made is not known.");
    out.outcome_unknown = true;
    return out;
}

failure unreadable_failure(const std::exception& cause, effect work_effect) {
    spdlog::error("an answer of PostgreSQL could not be read: {}", cause.what());
    failure out = make_failure(errc::internal_error, "The gateway could not read PostgreSQL's answer.");
    out.outcome_unknown = work_effect == effect::by_statement;
    return out;
}

}  // namespace fencegate::pg
