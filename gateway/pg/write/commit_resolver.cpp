#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/write/commit_resolver.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

/// Longest pause between two look-ups: the call's time is short.
constexpr std::chrono::milliseconds pause_max{200};

const std::string write_landed_sql = "select fencing.write_landed($1::uuid, $2::text)";

/// Waits until everything visible is on disk and on the standbys: a later commit waits for both.
void commit_marker(write_session& session) {
    try {
        session.command("select pg_logical_emit_message(true, 'fencegate', '')");
    } catch (const statement_failed& e) {
        // Where the function may not be called, no commit is visible before it is on disk.
        if (!e.error.sqlstate.starts_with("42")) throw;
    }
}

commit_status resolve_commit(write_session& session, const std::string& write_id, const std::string& resource,
                             deadline until) {
    auto pause = reconnect_backoff_min;
    while (!session.was_cut()) {
        try {
            session.connect();  // never the session on which the commit was sent
            const auto rows = run_statement(session, write_landed_sql, {write_id, resource});
            const bool committed = rows.text(0, 0)[0] == 't';
            if (committed) commit_marker(session);
            spdlog::warn("the connection broke during the commit of write {}; it was {}committed", write_id,
                         committed ? "" : "not ");
            return committed ? commit_status::committed : commit_status::not_committed;
        } catch (const session_lost&) {
        } catch (const statement_failed&) {
            // Probably lock_timeout: the broken transaction has not ended yet.
        } catch (const std::exception&) {
            break;  // an answer that cannot be read, or no memory for it
        }
        if (clock::now() + pause >= until + silence_max) break;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, pause_max);
    }
    spdlog::error("the connection broke during the commit of write {}; whether it was committed is unknown", write_id);
    return commit_status::unknown;
}

}  // namespace

commit_status commit_write(write_session& session, const std::string& write_id, const std::string& resource,
                           deadline until) {
    bool open = false;
    try {
        session.begin_commit();
        open = session.in_transaction();
    } catch (const session_lost&) {
    }
    // On another session, or after an error, COMMIT would succeed and commit nothing.
    if (!open) {
        session.drop();
        return commit_status::not_committed;
    }
    try {
        session.command("commit");
        return commit_status::committed;
    } catch (const statement_failed&) {
        // If PostgreSQL refuses COMMIT before it executes it (a timeout), the transaction stays open.
        roll_back(session);
        throw;
    } catch (const session_lost&) {
    } catch (const std::exception&) {
        session.drop();  // it is not known how far COMMIT came
    }
    return resolve_commit(session, write_id, resource, until);
}

std::optional<failure> failure_of(commit_status status) {
    switch (status) {
        case commit_status::committed:
            return std::nullopt;
        case commit_status::not_committed:
            return unavailable_because("the connection to PostgreSQL broke during the commit");
        case commit_status::unknown:
            break;
    }
    failure out = unavailable(
        "The connection to PostgreSQL broke during the commit; whether the write was committed is not known.");
    out.outcome_unknown = true;
    return out;
}

}  // namespace fencegate::pg
