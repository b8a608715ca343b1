#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/write/commit_flush.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace fencegate::pg {
namespace {

/// Writes a log record without meaning, so that the commit has to wait for the log; without `$1` only if some of the
/// log is not on disk or a standby has to confirm it. Returns the id of the oldest running transaction, and the id of
/// this one, or NULL where no record was needed.
const std::string flush_sql =
    "select pg_snapshot_xmin(pg_current_snapshot()), case when needed then pg_current_xact_id() end, "
    "case when needed then pg_logical_emit_message(true, 'fencegate', '') end "
    "from (select $1::boolean or case when pg_is_in_recovery() then false else "
    "current_setting('synchronous_standby_names') <> '' or pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() "
    "end as needed offset 0) as log";

/// Looks up which writes were committed. It locks their guard rows, so that its commit has to wait for the log and
/// proves that they are durable.
const std::string look_up_sql =
    "select fencing.write_landed(t.id, t.resource) from unnest($1::uuid[], $2::text[]) as t (id, resource)";

constexpr std::chrono::milliseconds look_up_pause{20};
/// The least time for a look-up, however little time its callers have left.
constexpr std::chrono::seconds look_up_time{1};

failure durability_unknown_failure() {
    failure out = unavailable(
        "The connection to PostgreSQL broke before the write was on disk; whether it was kept is not known.");
    out.outcome_unknown = true;
    return out;
}

deadline lookup_deadline(const std::vector<undurable_write>& writes) {
    deadline out = std::chrono::steady_clock::now() + look_up_time;
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

/// Looks up on a new session which transactions were kept, and answers them; the same statement makes them durable.
/// Tries again where the new session breaks too, until the deadlines of the transactions.
void resolve_all(write_session& session, std::vector<pending_durability> work) {
    // write_landed locks guard rows, and guard rows are always locked in the order of their names.
    std::ranges::sort(work, {}, [](const auto& transaction) { return transaction.writes.front().resource; });
    for (;;) {
        session.expect_answer_by(std::chrono::steady_clock::now() + look_up_time);
        const auto now = std::chrono::steady_clock::now();
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
                ids.push_back(transaction.writes.front().write_id);
                resources.push_back(transaction.writes.front().resource);
            }
            session.connect();
            const auto rows = run_statement(session, look_up_sql, {array_literal(ids), array_literal(resources)});
            for (; !work.empty(); work.pop_back()) {
                if (rows.text(static_cast<int>(work.size()) - 1, 0)[0] == 't') {
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

void answer_all(const std::vector<undurable_write>& writes, const std::optional<failure>& why) {
    for (const auto& write : writes)
        write.answer(why);
}

}  // namespace

void pending_durability::refuse(failure why) noexcept {
    if (snapshot) return snapshot->answer(std::move(why));
    answer_all(writes, durability_unknown_failure());
}

void pending_durability::succeed() {
    if (snapshot) return snapshot->answer(true);
    answer_all(writes, std::nullopt);
}

void pending_durability::fail() {
    if (snapshot) return snapshot->answer(false);
    answer_all(writes, unavailable("PostgreSQL stopped before the write was on disk; nothing was changed."));
}

commit_flush::commit_flush(const postgres_config& cfg)
    : reads_max_(std::max<std::size_t>(cfg.queue_max / 2, 1)),
      queued_(cfg.queue_max),
      flusher_(
          cfg, queued_,
          [this](session_slot& slot, std::vector<pending_durability> work) {
              slot_write_session session(slot);
              flush(session, std::move(work));
          },
          worker_options{{}, false, true}) {}

void commit_flush::add(committed_transaction transaction) {
    auto callers = std::make_shared<committed_callers>();
    for (const auto& write : transaction.writes) {
        write.caller->holder = &flusher_.worker();  // from now on only this worker answers the callers
        callers->add(write.caller);
    }
    const auto until = lookup_deadline(transaction.writes);
    flusher_.submit({transaction.begun, until, std::move(callers), std::move(transaction.writes)});
}

bool commit_flush::is_durable(const snapshot_state& state) const {
    using enum snapshot_state::durability;
    if (state.seen == durable || state.seen == flushed || !is_available()) return true;
    const std::lock_guard lock(mutex_);
    // If the session was connected before the proof, the server has not crashed between the proof and the read.
    return state.seen == replicated && state.transaction_end <= proven_end_ && state.connected_since <= proven_at_;
}

boost::asio::awaitable<result<bool>> commit_flush::await_durable(std::chrono::steady_clock::time_point taken,
                                                                 deadline until) {
    return await_reply<bool>(effect::none, [this, taken, until](std::shared_ptr<caller_awaiting<bool>> caller) {
        add(taken, until, std::move(caller));
    });
}

boost::asio::awaitable<std::optional<failure>> commit_flush::require_durable(
    std::chrono::steady_clock::time_point taken, deadline until) {
    const auto durable = co_await await_durable(taken, until);
    if (!durable) co_return durable.error();
    if (*durable) co_return std::nullopt;
    co_return unavailable("PostgreSQL stopped before the answer was on disk; nothing was changed.");
}

void commit_flush::add(std::chrono::steady_clock::time_point taken, deadline until,
                       std::shared_ptr<caller_awaiting<bool>> caller) {
    if (!is_available()) return caller->answer(true);
    if (reads_.fetch_add(1, std::memory_order_relaxed) >= reads_max_) {
        reads_.fetch_sub(1, std::memory_order_relaxed);
        return caller->answer(queue_full_failure());
    }
    auto read_count = std::shared_ptr<void>(nullptr, [this](void*) { reads_.fetch_sub(1, std::memory_order_relaxed); });
    flusher_.submit({taken, until, caller, {}, caller, std::move(read_count)});
}

/// Makes all visible transactions durable. `always`: commits even if the whole log is on disk.
///
/// Out: false where that is unknown.
bool commit_flush::commit_marker(write_session& session, bool always) {
    try {
        const auto sent_at = std::chrono::steady_clock::now();
        const auto rows = run_statement(session, flush_sql, {always ? "true" : "false"});
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

void commit_flush::flush(write_session& session, std::vector<pending_durability> work) {
    const bool has_writes = std::ranges::any_of(work, [](const auto& item) { return !item.snapshot; });
    const bool flushed = commit_marker(session, has_writes);
    const auto connected_since = session.connected_since();
    std::vector<pending_durability> undecided;
    for (auto& item : work) {
        if (flushed && connected_since < item.since) {
            item.succeed();
        } else if (item.snapshot) {
            item.fail();
        } else {
            undecided.push_back(std::move(item));
        }
    }
    resolve_all(session, std::move(undecided));
}

}  // namespace fencegate::pg
