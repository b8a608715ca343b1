#pragma once

#include <gateway/domain/found_outcome.hpp>
#include <gateway/pg/connection/write_session.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/write/kept_outcome.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// A key whose kept outcome is to be looked up, and the caller that waits for it.
struct pending_lookup {
    outcome_key key;
    deadline until;
    std::shared_ptr<caller_awaiting<found_outcome>> caller;

    const std::string& principal() const { return key.principal; }
    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
};

/// Looks up all keys in one round trip, once more on a new session where the first was lost, and answers each caller.
void look_up_batch(write_session& session, const std::vector<pending_lookup>& lookups);

}  // namespace fencegate::pg
