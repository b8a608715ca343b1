#include <gateway/pg/commit_flush.hpp>
#include <gateway/pg/commit_resolver.hpp>
#include <gateway/pg/sql_value.hpp>
#include <gateway/pg/sqlstate_map.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace fencegate::pg {
namespace {

/// A commit that waits for the log needs a record in it; this one means nothing to anybody. Not needed unless `$1`
/// where all of the log is on disk and no standby has to confirm it. Gives the oldest transaction that was running, and
/// the id of this one.
const std::string flush_sql =
    "select pg_snapshot_xmin(pg_current_snapshot()), case when needed then pg_current_xact_id() end, "
    "case when needed then pg_logical_emit_message(true, 'fencegate', '') end "
    "from (select $1::boolean or case when pg_is_in_recovery() then false else "
    "current_setting('synchronous_standby_names') <> '' or pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() "
    "end as needed offset 0) as log";

/// What was committed, and the flush that proves it is there to stay, in one.
const std::string look_up_sql =
    "select fencing.write_landed(t.id, t.resource), pg_logical_emit_message(true, 'fencegate', '') "
    "from unnest($1::uuid[], $2::text[]) as t (id, resource)";

constexpr std::chrono::milliseconds look_up_pause{20};
/// What a look-up gets, however little time its callers have left.
constexpr std::chrono::seconds look_up_time{1};

failure not_proven() {
    failure out = unavailable("PostgreSQL went away before the write was on disk; whether it landed is not known.");
    out.outcome_unknown = true;
    return out;
}

deadline patience_of(const committed_writes& writes) {
    deadline out = std::chrono::steady_clock::now() + look_up_time;
    for (const auto& one : writes.writes)
        out = std::max(out, one.first->until());
    return out;
}

/// Those who wait for what is committed: whatever was cut, it may have landed.
class committed_callers final : public waiting_caller {
  public:
    void add(std::shared_ptr<waiting_caller> one) { all_.push_back(std::move(one)); }
    void give_up(bool) noexcept override {
        for (const auto& one : all_)
            one->give_up(false);
    }

  private:
    std::vector<std::shared_ptr<waiting_caller>> all_;
};

/// Writes that are committed.
class flush_job final : public job {
  public:
    /// `holder`: from now on it alone speaks for the callers.
    flush_job(committed_writes committed, const worker* holder)
        : job(patience_of(committed)),
          begun_(committed.begun),
          writes_(std::move(committed.writes)),
          callers_(std::make_shared<committed_callers>()) {
        for (const auto& [one, outcome] : writes_) {
            if (auto waits = one->caller()) {
                waits->holder = holder;
                callers_->add(std::move(waits));
            }
        }
    }

    std::chrono::steady_clock::time_point begun() const { return begun_; }

    void run(session_slot&) noexcept override {}
    void refuse(failure) noexcept override { answer_all(not_proven()); }
    bool shares() const override { return true; }
    std::shared_ptr<waiting_caller> caller() const override { return callers_; }

    void succeed() {
        for (auto& [one, outcome] : writes_)
            one->answer(std::move(outcome));
    }

    const std::string& write_id() const { return writes_.front().first->request().write_id; }
    const std::string& resource() const { return writes_.front().first->request().resources.front().str(); }

    void fail() { answer_all(unavailable("PostgreSQL stopped before the write was on disk; nothing was changed.")); }

  private:
    void answer_all(const failure& why) {
        for (auto& [one, outcome] : writes_)
            one->answer(why);
    }

    std::chrono::steady_clock::time_point begun_;
    decltype(committed_writes::writes) writes_;
    std::shared_ptr<committed_callers> callers_;
};

using flush_jobs = std::vector<std::unique_ptr<flush_job>>;

/// What became of them, asked on one new session, which proves what it has said by the flush behind it. Again where it
/// breaks as well, as long as there is time.
void look_up(session_slot& slot, flush_jobs work) {
    // write_landed locks guard rows, and those are locked in the order of their names.
    std::sort(work.begin(), work.end(), [](const auto& a, const auto& b) { return a->resource() < b->resource(); });
    for (;;) {
        slot.expect_answer_by(std::chrono::steady_clock::now() + look_up_time);
        const auto now = std::chrono::steady_clock::now();
        std::erase_if(work, [now](auto& one) {
            if (now < one->until()) return false;
            spdlog::error("whether the writes of a transaction are on disk is unknown");
            one->refuse(not_proven());
            return true;
        });
        if (work.empty()) return;
        try {
            std::vector<std::string> ids;
            std::vector<std::string> resources;
            for (const auto& one : work) {
                ids.push_back(one->write_id());
                resources.push_back(one->resource());
            }
            const auto rows = slot.connect().exec(look_up_sql, {array_literal(ids), array_literal(resources)});
            for (std::size_t i = 0; i < work.size(); ++i) {
                if (rows[static_cast<int>(i)][0].as<bool>()) {
                    work[i]->succeed();
                } else {
                    work[i]->fail();
                }
            }
            return;
        } catch (const std::exception& e) {
            slot.drop();
            spdlog::warn("looking up what was committed: {}", e.what());
        }
        std::this_thread::sleep_for(look_up_pause);
    }
}

}  // namespace

commit_flush::commit_flush(const postgres_config& cfg) : reads_max_(std::max<std::size_t>(cfg.queue_max / 2, 1)) {
    workers_.push_back(std::make_unique<pg::worker>(
        cfg, queued_,
        worker_manner{
            [this](session_slot& slot, std::vector<std::unique_ptr<job>> work) { flush(slot, std::move(work)); }, false,
            true}));
}

void commit_flush::answer_when_on_disk(committed_writes writes) {
    worker()->submit(std::make_unique<flush_job>(std::move(writes), worker().get()));
}

bool commit_flush::is_durable(const snapshot_state& state) const {
    using enum snapshot_state::durability;
    if (state.seen == durable || state.seen == flushed || !serves()) return true;
    const std::lock_guard lock(mutex_);
    // A session that was there when the proof was made reads from the same life of the server.
    return state.seen == replicated && state.transaction_end <= proven_end_ && state.connected_since <= proven_at_;
}

void commit_flush::answer_when_durable(std::unique_ptr<snapshot_job> read) {
    if (!serves()) return read->answer(true);
    if (reads_.fetch_add(1, std::memory_order_relaxed) >= reads_max_) {
        reads_.fetch_sub(1, std::memory_order_relaxed);
        return read->refuse(full_failure());
    }
    read->place = std::shared_ptr<void>(nullptr, [this](void*) { reads_.fetch_sub(1, std::memory_order_relaxed); });
    worker()->submit(std::move(read));
}

/// Makes all that is visible durable. False: it can't be told. `always`: by a commit, whatever the log looks like.
bool commit_flush::commit_marker(session_slot& slot, bool always) {
    try {
        auto& session = slot.get();
        const auto sent_at = std::chrono::steady_clock::now();
        const auto rows = session.exec(flush_sql, {always ? "true" : "false"});
        if (rows[0][1].is_null()) return true;
        const auto oldest = rows[0][0].as<std::uint64_t>();
        const auto own = rows[0][1].as<std::uint64_t>();
        const std::lock_guard lock(mutex_);
        // Where no other transaction ran, all before this one had ended, and their commits stand before its own.
        proven_end_ = oldest == own ? own + 1 : oldest;
        proven_at_ = sent_at;
        return true;
    } catch (const statement_failed& e) {
        if (e.error.sqlstate.starts_with("42")) {
            serves_.store(false, std::memory_order_relaxed);
            spdlog::error("pg_logical_emit_message can't be called, so every transaction waits for the disk itself: {}",
                          e.error.message);
        }
    } catch (const session_lost&) {
    }
    return false;
}

void commit_flush::flush(session_slot& slot, std::vector<std::unique_ptr<job>> work) {
    const bool with_writes =
        std::ranges::any_of(work, [](const auto& one) { return dynamic_cast<flush_job*>(one.get()) != nullptr; });
    const bool flushed = commit_marker(slot, with_writes);
    const auto since = slot.connected_since();
    flush_jobs unsure;
    for (auto& any : work) {
        if (auto* read = dynamic_cast<snapshot_job*>(any.get())) {
            read->answer(flushed && since < read->taken());
            continue;
        }
        std::unique_ptr<flush_job> one(static_cast<flush_job*>(any.release()));
        if (flushed && since < one->begun()) {
            one->succeed();
        } else {
            unsure.push_back(std::move(one));
        }
    }
    look_up(slot, std::move(unsure));
}

}  // namespace fencegate::pg
