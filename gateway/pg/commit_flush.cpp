#include <gateway/pg/commit_flush.hpp>
#include <gateway/pg/commit_resolver.hpp>
#include <gateway/pg/sqlstate_map.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

namespace fencegate::pg {
namespace {

/// A commit that waits for the log needs a record in it; this one means nothing to anybody.
const std::string flush_sql = "select pg_logical_emit_message(true, 'fencegate', '')";

failure not_proven() {
    failure out = unavailable("PostgreSQL went away before the write was on disk; whether it landed is not known.");
    out.outcome_unknown = true;
    return out;
}

deadline patience_of(const committed_writes& writes) {
    auto out = std::chrono::steady_clock::now() + find_out_min;
    for (const auto& one : writes.writes)
        out = std::max(out, one.first->until());
    return out;
}

class flush_job final : public job {
  public:
    explicit flush_job(committed_writes committed)
        : job(patience_of(committed)), begun_(committed.begun), writes_(std::move(committed.writes)) {}

    std::chrono::steady_clock::time_point begun() const { return begun_; }

    void run(session_slot&) noexcept override {}
    void refuse(failure) noexcept override { answer_all(not_proven()); }
    bool shares() const override { return true; }

    void succeed() {
        for (auto& [one, outcome] : writes_)
            one->answer(std::move(outcome));
    }

    void look_up(session_slot& slot) {
        const auto& first = writes_.front().first->request();
        switch (find_out(slot, first.write_id, first.resources.front().str(), until())) {
            case landed::yes:
                try {
                    slot.get().command(flush_sql);
                    return succeed();
                } catch (const std::exception&) {
                    slot.drop();
                    return answer_all(not_proven());
                }
            case landed::no:
                return answer_all(unavailable("PostgreSQL stopped before the write was on disk; nothing was changed."));
            case landed::unknown:
                return answer_all(not_proven());
        }
    }

  private:
    void answer_all(const failure& why) {
        for (auto& [one, outcome] : writes_)
            one->answer(why);
    }

    std::chrono::steady_clock::time_point begun_;
    decltype(committed_writes::writes) writes_;
};

}  // namespace

commit_flush::commit_flush(const postgres_config& cfg) {
    workers_.push_back(std::make_unique<pg::worker>(
        cfg, queued_,
        worker_manner{
            [this](session_slot& slot, std::vector<std::unique_ptr<job>> work) { flush(slot, std::move(work)); },
            false}));
}

void commit_flush::answer_when_on_disk(committed_writes writes) {
    worker()->submit(std::make_unique<flush_job>(std::move(writes)));
}

void commit_flush::flush(session_slot& slot, std::vector<std::unique_ptr<job>> work) {
    bool flushed = false;
    try {
        slot.get().command(flush_sql);
        flushed = true;
    } catch (const statement_failed& e) {
        if (e.error.sqlstate.starts_with("42")) {
            serves_.store(false, std::memory_order_relaxed);
            spdlog::error("pg_logical_emit_message can't be called, so every transaction waits for the disk itself: {}",
                          e.error.message);
        }
    } catch (const session_lost&) {
    }
    const auto since = slot.connected_since();  // looking one up connects anew
    for (auto& one : work) {
        auto& waiting = static_cast<flush_job&>(*one);
        if (flushed && since < waiting.begun()) {
            waiting.succeed();
        } else {
            waiting.look_up(slot);
        }
    }
}

}  // namespace fencegate::pg
