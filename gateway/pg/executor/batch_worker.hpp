#pragma once

#include <gateway/pg/executor/worker.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// A worker that runs work of one kind in batches: everything that is queued when it becomes free, up to batch_max.
/// Other jobs may be submitted to worker() in between, and keep their place in the queue.
///
/// In:      `Work` has `until`, `caller` (a shared_ptr to the waiting caller, or empty), refuse(failure) noexcept and,
///          unless it is work of the gateway itself, principal().
///          `handler` answers all work of its batch; work whose deadline has passed is not in it.
/// Threads: submit() from any thread; the handler runs on the worker's.
template <class Work>
class batch_worker {
  public:
    using batch_handler = std::function<void(session_slot&, std::vector<Work>)>;

    batch_worker(const postgres_config& cfg, queued_jobs& queued, batch_handler handler, worker_options options = {}) {
        options.finish_batch = [this, handler = std::move(handler)](session_slot& slot) {
            handler(slot, std::exchange(batch_, {}));
        };
        worker_ = std::make_unique<pg::worker>(cfg, queued, std::move(options));
    }

    void submit(Work work) { worker_->submit(std::make_unique<member>(std::move(work), batch_)); }

    pg::worker& worker() const { return *worker_; }

  private:
    class member final : public job {
      public:
        member(Work work, std::vector<Work>& batch) : job(work.until), work_(std::move(work)), batch_(batch) {}

        void run(session_slot&) noexcept override { batch_.push_back(std::move(work_)); }
        void refuse(failure why) noexcept override { work_.refuse(std::move(why)); }
        std::shared_ptr<waiting_caller> caller() const override { return work_.caller; }
        const std::string& principal() const override {
            if constexpr (requires { work_.principal(); }) return work_.principal();
            return job::principal();
        }
        bool joins_batch() const override { return true; }

      private:
        Work work_;
        std::vector<Work>& batch_;
    };

    std::vector<Work> batch_;             ///< Used by the worker's thread alone.
    std::unique_ptr<pg::worker> worker_;  ///< Destroyed first, because its jobs refer to batch_.
};

}  // namespace fencegate::pg
