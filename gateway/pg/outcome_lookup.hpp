#pragma once

#include <gateway/pg/kept_outcome.hpp>
#include <gateway/pg/worker.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Looks up what is kept under a key, and whoever waits for it.
class lookup_job : public job {
  public:
    lookup_job(deadline until, key_of key) : job(until), key_(std::move(key)) {}

    virtual void answer(result<found_outcome> found) noexcept = 0;
    void refuse(failure why) noexcept final { answer(std::move(why)); }
    bool shares() const final { return true; }
    void run(session_slot& slot) noexcept final;

    const key_of& key() const { return key_; }

  private:
    key_of key_;
};

/// All of them in one round trip; once more on a new session where the first was lost. All of `work` are lookup_jobs.
void look_up_together(session_slot& slot, std::vector<std::unique_ptr<job>> work);

}  // namespace fencegate::pg
