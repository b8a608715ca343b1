#include <gateway/pg/commit_resolver.hpp>
#include <gateway/pg/sqlstate_map.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

/// Longest pause between two attempts to find out: the call's time is short.
constexpr std::chrono::milliseconds pause_max{200};

/// What is visible may still be on its way to the disk or to a standby: a commit behind it waits for both.
void commit_marker(session& session) {
    try {
        session.command("select pg_logical_emit_message(true, 'fencegate', '')");
    } catch (const statement_failed& e) {
        // Where the function may not be called, no commit is visible before it is on disk.
        if (!e.error.sqlstate.starts_with("42")) throw;
    }
}

landed find_out(session_slot& slot, const std::string& write_id, const std::string& resource, deadline until) {
    auto pause = reconnect_backoff_min;
    while (!slot.was_cut()) {
        try {
            // Never the session on which the commit was sent.
            auto& fresh = slot.connect();
            const auto rows = fresh.exec("select fencing.write_landed($1::uuid, $2::text)", {write_id, resource});
            const bool yes = rows[0][0].as<bool>();
            if (yes) commit_marker(fresh);
            spdlog::warn("the connection broke during the commit of write {}; it {}", write_id,
                         yes ? "landed" : "did not land");
            return yes ? landed::yes : landed::no;
        } catch (const session_lost&) {
        } catch (const statement_failed&) {
            // Most likely lock_timeout: the broken transaction has not ended yet.
        }
        if (clock::now() + pause >= until + silence_max) break;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, pause_max);
    }
    spdlog::error("the connection broke during the commit of write {}; whether it landed is unknown", write_id);
    return landed::unknown;
}

/// Whatever happens, the commit is no longer under way.
class commit_phase {
  public:
    explicit commit_phase(session_slot& slot) : slot_(slot) { slot.begin_commit(); }
    ~commit_phase() { slot_.end_commit(); }
    commit_phase(const commit_phase&) = delete;
    commit_phase& operator=(const commit_phase&) = delete;

  private:
    session_slot& slot_;
};

}  // namespace

landed commit_write(session_slot& slot, const std::string& write_id, const std::string& resource, deadline until) {
    std::optional<commit_phase> phase;
    try {
        phase.emplace(slot);
    } catch (const session_lost&) {
        slot.drop();
        return landed::no;
    }
    try {
        auto& via = slot.get();
        // On another session, or after an error, COMMIT would be a success that commits nothing.
        if (!via.in_transaction()) {
            slot.drop();
            return landed::no;
        }
        via.command("commit");
        return landed::yes;
    } catch (const session_lost&) {
    }
    return find_out(slot, write_id, resource, until);
}

std::optional<failure> failure_of(landed outcome) {
    switch (outcome) {
        case landed::yes:
            return std::nullopt;
        case landed::no:
            return unavailable_because("the connection to PostgreSQL broke during the commit");
        case landed::unknown:
            break;
    }
    failure out =
        unavailable("The connection to PostgreSQL broke during the commit; whether the write landed is not known.");
    out.outcome_unknown = true;
    return out;
}

}  // namespace fencegate::pg
