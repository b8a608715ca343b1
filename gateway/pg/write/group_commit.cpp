#include <gateway/pg/write/group_commit.hpp>

#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

/// Writes a log record without meaning, so that the commit has to wait for the log; without `$1` only if some of the
/// log is not on disk or a standby has to confirm it. Returns the id of the oldest running transaction, and the id of
/// this one, or NULL where no record was needed.
const std::string marker_sql =
    "select pg_snapshot_xmin(pg_current_snapshot()), case when needed then pg_current_xact_id() end, "
    "case when needed then pg_logical_emit_message(true, 'fencegate', '') end "
    "from (select $1::boolean or case when pg_is_in_recovery() then false else "
    "current_setting('synchronous_standby_names') <> '' or pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() "
    "end as needed offset 0) as log";

/// Looks up which writes were committed. It locks their guard rows, so that its commit has to wait for the log and
/// proves that they are durable.
const std::string look_up_sql =
    "select fencing.write_landed(t.id, t.resource) from unnest($1::uuid[], $2::text[]) as t (id, resource)";

/// Longest pause between two look-ups of a broken commit: the call's time is short.
constexpr std::chrono::milliseconds resolve_pause_max{200};
constexpr std::chrono::milliseconds look_up_pause{20};
/// The least time for a look-up, however little time its callers have left.
constexpr std::chrono::seconds look_up_time{1};

/// When a marker is committed.
enum class marker_need {
    always,
    if_unflushed  ///< Only if some of the log is not on disk, or a standby has to confirm it.
};

/// Makes everything visible durable, on the standbys too: a later commit waits for both.
answer_rows commit_marker(write_session& session, marker_need need) {
    return run_statement(session, marker_sql, {need == marker_need::always ? "true" : "false"});
}

/// Returns for each of some writes of different transactions whether it was committed.
std::vector<bool> look_up(write_session& session, const std::vector<std::string>& ids,
                          const std::vector<std::string>& resources) {
    const auto rows = run_statement(session, look_up_sql, {array_literal(ids), array_literal(resources)});
    std::vector<bool> out;
    for (int row = 0; row < static_cast<int>(ids.size()); ++row)
        out.push_back(rows.text(row, 0)[0] == 't');
    return out;
}

/// Waits until everything visible is durable.
void prove_durable(write_session& session) {
    try {
        commit_marker(session, marker_need::always);
    } catch (const statement_failed& e) {
        // Where the function may not be called, no commit is visible before it is on disk.
        if (!e.error.sqlstate.starts_with("42")) throw;
    }
}

failure durability_unknown_failure() {
    failure out = unavailable(
        "The connection to PostgreSQL broke before the write was on disk; whether it was kept is not known.");
    out.outcome_unknown = true;
    return out;
}

deadline lookup_deadline(const std::vector<undurable_write>& writes) {
    deadline out = clock::now() + look_up_time;
    for (const auto& write : writes)
        out = std::max(out, write.until);
    return out;
}

/// The callers of one committed transaction. Their answer never says that nothing was changed, because it is committed.
class committed_callers final : public waiting_caller {
  public:
    void add(std::shared_ptr<waiting_caller> caller) { callers_.push_back(std::move(caller)); }
    void give_up(bool) noexcept override {
        for (const auto& caller : callers_)
            caller->give_up(false);
    }

  private:
    std::vector<std::shared_ptr<waiting_caller>> callers_;
};

/// Looks up on a session that was connected after they began which transactions were kept, and answers them; the same
/// statement makes them durable. `is_new`: the present session is such a one. Where it breaks, tries again on another,
/// until the deadlines of the transactions.
void resolve_all(write_session& session, std::vector<pending_durability> work, bool is_new) {
    // write_landed locks guard rows, and guard rows are always locked in the order of their names.
    std::ranges::sort(work, {}, [](const auto& transaction) { return transaction.first_write().resource; });
    for (;;) {
        session.expect_answer_by(clock::now() + look_up_time);
        const auto now = clock::now();
        std::erase_if(work, [now](auto& transaction) {
            if (now < transaction.until) return false;
            spdlog::error("whether the writes of a transaction are on disk is unknown");
            transaction.refuse(durability_unknown_failure());
            return true;
        });
        if (work.empty()) return;
        try {
            std::vector<std::string> ids;
            std::vector<std::string> resources;
            for (const auto& transaction : work) {
                ids.push_back(transaction.first_write().write_id);
                resources.push_back(transaction.first_write().resource);
            }
            if (!std::exchange(is_new, false)) session.connect();
            const auto committed = look_up(session, ids, resources);
            for (; !work.empty(); work.pop_back()) {
                if (committed[work.size() - 1]) {
                    work.back().succeed();
                } else {
                    work.back().fail();
                }
            }
            return;
        } catch (const std::exception& e) {
            session.drop();
            spdlog::warn("looking up committed writes failed: {}", e.what());
        }
        std::this_thread::sleep_for(look_up_pause);
    }
}

snapshot_state state_of(const session_slot& slot, const char* not_on_disk, const char* with_standbys, const char* end,
                        clock::time_point server_ran_at) {
    snapshot_state out;
    using enum snapshot_state::durability;
    out.seen = *with_standbys == 't' ? replicated : *not_on_disk == 't' ? unflushed : flushed;
    out.transaction_end = std::strtoull(end, nullptr, 10);
    out.server_ran_at = server_ran_at;
    out.connected_since = slot.connected_since();
    return out;
}

}  // namespace

commit_status resolve_commit(write_session& session, const std::string& write_id, const std::string& resource,
                             deadline until) {
    auto pause = reconnect_backoff_min;
    while (!session.was_cut()) {
        try {
            session.connect();  // never the session on which the commit was sent
            const bool committed = look_up(session, {write_id}, {resource}).front();
            if (committed) prove_durable(session);
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
        pause = std::min(pause * 2, resolve_pause_max);
    }
    spdlog::error("the connection broke during the commit of write {}; whether it was committed is unknown", write_id);
    return commit_status::unknown;
}

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

void durability_waiter::answer(std::optional<failure> why) {
    if (answered_.exchange(true)) return;
    failure_ = std::move(why);
    signal_.try_send(boost::system::error_code());
}

void durability_waiter::give_up(bool) noexcept {
    // The write was committed, so it may have reached the disk.
    answer(unresponsive_failure(false));
}

asio::awaitable<std::optional<failure>> durability_waiter::wait() {
    co_await signal_.async_receive(asio::use_awaitable);
    co_return std::move(failure_);
}

const std::string& snapshot_state_sql() {
    // A server in recovery shows only what its primary had on disk before sending it.
    static const std::string sql =
        "select case when recovering then false else pg_catalog.pg_current_wal_insert_lsn() "
        "operator(pg_catalog.>) pg_catalog.pg_current_wal_flush_lsn() end, "
        "not recovering and pg_catalog.current_setting('synchronous_standby_names') operator(pg_catalog.<>) '', "
        "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) "
        "from (select pg_catalog.pg_is_in_recovery() as recovering offset 0) as server";
    return sql;
}

snapshot_state read_snapshot_state(const session_slot& slot, const answer_rows& rows, clock::time_point sent_at) {
    return state_of(slot, rows.text(0, 0), rows.text(0, 1), rows.text(0, 2), sent_at);
}

snapshot_state fetch_snapshot_state(session_slot& slot) {
    const auto sent_at = clock::now();
    const auto rows = slot.get().exec(snapshot_state_sql(), {});
    return state_of(slot, rows[0][0].c_str(), rows[0][1].c_str(), rows[0][2].c_str(), sent_at);
}

void pending_durability::answer(const std::optional<failure>& of_writes, result<bool> of_snapshot) {
    if (const auto* read = std::get_if<undurable_read>(&data)) return read->caller->answer(std::move(of_snapshot));
    for (const auto& write : std::get<std::vector<undurable_write>>(data))
        write.answer(of_writes);
}

void pending_durability::refuse(failure why) noexcept {
    answer(durability_unknown_failure(), std::move(why));
}

void pending_durability::succeed() {
    answer(std::nullopt, true);
}

void pending_durability::fail() {
    answer(unavailable("PostgreSQL stopped before the write was on disk; nothing was changed."), false);
}

group_commit::group_commit(const postgres_config& cfg)
    : reads_max_(std::max<std::size_t>(cfg.queue_max / 2, 1)),
      queued_(cfg.queue_max),
      flusher_(cfg, queued_, worker_options{.queue_while_disconnected = true}) {}

void group_commit::submit(pending_durability work) {
    flusher_.submit(std::make_unique<batched_job<group_commit, pending_durability>>(*this, std::move(work)));
}

void group_commit::add(committed_transaction transaction) {
    auto callers = std::make_shared<committed_callers>();
    for (const auto& write : transaction.writes) {
        write.caller->responsible = &flusher_;  // from now on only this worker answers the callers
        callers->add(write.caller);
    }
    const auto until = lookup_deadline(transaction.writes);
    submit({.server_ran_at = transaction.begun,
            .until = until,
            .caller = std::move(callers),
            .data = std::move(transaction.writes)});
}

bool group_commit::is_durable(const snapshot_state& state) const {
    using enum snapshot_state::durability;
    if (state.seen == durable || state.seen == flushed || !is_available()) return true;
    const std::lock_guard lock(mutex_);
    // If the session was connected before the proof, the server has not crashed between the proof and the read.
    return state.seen == replicated && state.transaction_end <= proven_end_ && state.connected_since <= proven_at_;
}

asio::awaitable<result<bool>> group_commit::await_durable(clock::time_point server_ran_at, deadline until) {
    return await_reply<bool>(effect::none, [this, server_ran_at, until](std::shared_ptr<caller_awaiting<bool>> caller) {
        answer_when_durable(server_ran_at, until, std::move(caller));
    });
}

asio::awaitable<std::optional<failure>> group_commit::require_durable(clock::time_point server_ran_at, deadline until) {
    const auto durable = co_await await_durable(server_ran_at, until);
    if (!durable) co_return durable.error();
    if (*durable) co_return std::nullopt;
    co_return unavailable("PostgreSQL stopped before the answer was on disk; nothing was changed.");
}

void group_commit::answer_when_durable(clock::time_point server_ran_at, deadline until,
                                       std::shared_ptr<caller_awaiting<bool>> caller) {
    if (!is_available()) return caller->answer(true);
    if (reads_.fetch_add(1, std::memory_order_relaxed) >= reads_max_) {
        reads_.fetch_sub(1, std::memory_order_relaxed);
        return caller->answer(queue_full_failure());
    }
    auto read_count = std::shared_ptr<void>(nullptr, [this](void*) { reads_.fetch_sub(1, std::memory_order_relaxed); });
    submit({.server_ran_at = server_ran_at,
            .until = until,
            .caller = caller,
            .data = undurable_read{.caller = caller, .read_count = std::move(read_count)}});
}

/// Makes all visible transactions durable. `has_writes`: commits even if the whole log is on disk.
///
/// Out: false where that is unknown.
bool group_commit::flush(write_session& session, bool has_writes) {
    try {
        const auto sent_at = clock::now();
        const auto rows = commit_marker(session, has_writes ? marker_need::always : marker_need::if_unflushed);
        if (rows.is_null(0, 1)) return true;
        const auto oldest = std::strtoull(rows.text(0, 0), nullptr, 10);
        const auto marker_id = std::strtoull(rows.text(0, 1), nullptr, 10);
        const std::lock_guard lock(mutex_);
        // Where no other transaction ran, all earlier ones had ended, and their commits precede this one in the log.
        proven_end_ = oldest == marker_id ? marker_id + 1 : oldest;
        proven_at_ = sent_at;
        return true;
    } catch (const statement_failed& e) {
        if (e.error.sqlstate.starts_with("42")) {
            available_.store(false, std::memory_order_relaxed);
            spdlog::error("pg_logical_emit_message can't be called, so every transaction waits for the disk itself: {}",
                          e.error.message);
        }
    } catch (const session_lost&) {
    }
    return false;
}

void group_commit::run_batch(write_session& session, std::vector<pending_durability> work) {
    const bool has_writes = std::ranges::any_of(work, &pending_durability::is_transaction);
    const bool flushed = flush(session, has_writes);
    const auto connected_since = session.connected_since();
    std::vector<pending_durability> undecided;
    for (auto& item : work) {
        if (flushed && connected_since < item.server_ran_at) {
            item.succeed();
        } else if (item.is_transaction()) {
            undecided.push_back(std::move(item));
        } else {
            item.fail();
        }
    }
    resolve_all(session, std::move(undecided), flushed);
}

}  // namespace fencegate::pg
