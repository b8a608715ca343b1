#pragma once

#include <gateway/domain/found_outcome.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/write/kept_outcome.hpp>
#include <gateway/pg/write/write_session.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// A look at what is kept under a key, and whoever waits for it.
struct pending_lookup {
    key_of key;
    deadline until;
    std::shared_ptr<waiting_for<found_outcome>> caller;

    void refuse(failure why) noexcept { caller->answer(std::move(why)); }
};

/// Looks all of them up in one round trip, once more on a new session where the first was lost, and answers each.
void look_up_together(write_session& session, const std::vector<pending_lookup>& lookups);

}  // namespace fencegate::pg
