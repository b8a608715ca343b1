#pragma once

#include <gateway/pg/catalog.hpp>
#include <gateway/pg/commit_flush.hpp>
#include <gateway/pg/guarded_write.hpp>
#include <gateway/pg/outcome_lookup.hpp>
#include <gateway/pg/sqlstate_map.hpp>
#include <gateway/pg/visible_write.hpp>
#include <gateway/pg/worker.hpp>
#include <gateway/pg/write_batcher.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace fencegate::pg {

// Pieces of work for a worker, each with the coroutine that waits for its answer.

/// Runs `work` on a session; what libpqxx threw becomes a failure. `changes` tells whether a lost connection leaves the
/// outcome unknown.
template <class T, class Work>
result<T> attempt(Work& work, session_slot& slot, bool changes) {
    try {
        return work(slot);
    } catch (const session_lost& lost) {
        slot.drop();
        if (!changes) return unavailable_because(lost.cause);
        failure out = unavailable("The connection to PostgreSQL broke; whether it was done is not known.");
        out.outcome_unknown = true;
        return out;
    } catch (const statement_failed& e) {
        log_for_operator(e.error);
        return to_failure(e.error);
    } catch (const std::exception& e) {
        slot.drop();
        spdlog::error("an answer of PostgreSQL could not be read: {}", e.what());
        return make_failure(errc::internal_error, "The gateway could not read PostgreSQL's answer.");
    }
}

/// What a caller is told whose work is under way when PostgreSQL falls silent.
inline failure silent_failure(bool unchanged) {
    if (unchanged) return unavailable_because(silent_cause);
    failure out = unavailable("PostgreSQL does not answer; whether it was done is not known.");
    out.outcome_unknown = true;
    return out;
}

template <class Handler>
using outstanding_executor =
    decltype(boost::asio::prefer(boost::asio::get_associated_executor(std::declval<const Handler&>()),
                                 boost::asio::execution::outstanding_work.tracked));

/// What is true of work whose connection was cut.
enum class effect {
    none,          ///< Nothing was changed.
    by_statement,  ///< Not known: a statement of its own commits by itself.
    by_commit      ///< Nothing was changed unless a commit was on its way.
};

/// A coroutine that waits. The answer is posted to its executor, whatever thread it comes from; the first one counts.
template <class T, class Handler>
class reply final : public waiting_caller {
  public:
    reply(effect how, Handler handler)
        : effect_(how),
          executor_(boost::asio::prefer(boost::asio::get_associated_executor(handler),
                                        boost::asio::execution::outstanding_work.tracked)),
          handler_(std::move(handler)) {}

    void give(result<T> value) {
        if (given_.exchange(true)) return;
        boost::asio::post(executor_, [handler = std::move(handler_), value = std::move(value)]() mutable {
            std::move(handler)(std::move(value));
        });
    }

    void give_up(bool unchanged) noexcept override {
        give(silent_failure(effect_ == effect::none || (effect_ == effect::by_commit && unchanged)));
    }

    boost::asio::any_io_executor executor() const { return executor_; }

  private:
    effect effect_;
    std::atomic<bool> given_{false};
    outstanding_executor<Handler> executor_;
    Handler handler_;
};

/// Work with the coroutine that waits for it.
template <class T, class Work, class Handler>
class waiting_job final : public job {
  public:
    waiting_job(deadline until, bool changes, Work work, Handler handler)
        : job(until),
          changes_(changes),
          work_(std::move(work)),
          reply_(
              std::make_shared<reply<T, Handler>>(changes ? effect::by_statement : effect::none, std::move(handler))) {}

    void run(session_slot& slot) noexcept override { reply_->give(attempt<T>(work_, slot, changes_)); }
    void refuse(failure why) noexcept override { reply_->give(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return reply_; }

  private:
    bool changes_;
    Work work_;
    std::shared_ptr<reply<T, Handler>> reply_;
};

/// What is left of a write that others can see: the wait for the disk.
class disk_job final : public write_job {
  public:
    disk_job(const write_job& of, std::shared_ptr<disk_wait> wait)
        : write_job(of.until(), of.request()), wait_(std::move(wait)) {}

    void run(session_slot&) noexcept override {}
    void answer(result<write_outcome> value) noexcept override {
        wait_->answer(value ? std::nullopt : std::optional(value.error()));
    }
    std::shared_ptr<waiting_caller> caller() const override { return wait_; }

  private:
    std::shared_ptr<disk_wait> wait_;
};

/// The same for a write.
template <class Handler>
class waiting_write final : public write_job {
  public:
    waiting_write(deadline until, write_request request, catalog_store& catalogs, memory_budget& answers,
                  Handler handler)
        : write_job(until, std::move(request)),
          catalogs_(catalogs),
          answers_(answers),
          reply_(std::make_shared<reply<visible_write, Handler>>(effect::by_commit, std::move(handler))) {}

    void run(session_slot& slot) noexcept override {
        auto work = [this](session_slot& via) { return run_write(via, catalogs_, answers_, request(), until()); };
        answer(attempt<write_outcome>(work, slot, false));
    }

    void answer(result<write_outcome> value) noexcept override {
        if (value) {
            reply_->give(visible_write{std::move(*value), nullptr});
        } else {
            reply_->give(value.error());
        }
    }

    std::unique_ptr<write_job> tell_visible(const write_outcome& outcome) noexcept override {
        if (!request().seal) return nullptr;
        auto wait = std::make_shared<disk_wait>(reply_->executor());
        auto rest = std::make_unique<disk_job>(*this, wait);
        reply_->give(visible_write{outcome, std::move(wait)});
        return rest;
    }

    std::shared_ptr<waiting_caller> caller() const override { return reply_; }

  private:
    catalog_store& catalogs_;
    memory_budget& answers_;
    std::shared_ptr<reply<visible_write, Handler>> reply_;
};

/// The same for a read that waits until what it saw is on disk.
template <class Handler>
class waiting_snapshot final : public snapshot_job {
  public:
    waiting_snapshot(deadline until, std::chrono::steady_clock::time_point taken, Handler handler)
        : snapshot_job(until, taken),
          reply_(std::make_shared<reply<bool, Handler>>(effect::none, std::move(handler))) {}

    void answer(result<bool> durable) noexcept override { reply_->give(std::move(durable)); }
    std::shared_ptr<waiting_caller> caller() const override { return reply_; }

  private:
    std::shared_ptr<reply<bool, Handler>> reply_;
};

/// The same for a look at what is kept under a key.
template <class Handler>
class waiting_lookup final : public lookup_job {
  public:
    waiting_lookup(deadline until, key_of key, Handler handler)
        : lookup_job(until, std::move(key)),
          reply_(std::make_shared<reply<found_outcome, Handler>>(effect::none, std::move(handler))) {}

    void answer(result<found_outcome> value) noexcept override { reply_->give(std::move(value)); }
    std::shared_ptr<waiting_caller> caller() const override { return reply_; }

  private:
    std::shared_ptr<reply<found_outcome, Handler>> reply_;
};

}  // namespace fencegate::pg
