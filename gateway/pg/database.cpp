#include <gateway/pg/database.hpp>

#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/job.hpp>
#include <gateway/pg/read/read_pool.hpp>
#include <gateway/pg/read/table_reader.hpp>
#include <gateway/pg/write/group_commit.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;

/// How often queues are searched for work whose deadline has passed.
constexpr std::chrono::milliseconds enforcement_interval{100};

/// How often drain() checks whether the workers have ended.
constexpr std::chrono::milliseconds end_poll_interval{5};

/// For how long the result of a check of readiness answers further callers. Readiness needs no credential, so that the
/// number of checks must not depend on the number of callers.
constexpr std::chrono::milliseconds readiness_reuse_time{200};

void append_workers(std::vector<worker*>& out, const std::vector<std::unique_ptr<worker>>& workers) {
    for (const auto& added : workers)
        out.push_back(added.get());
}

}  // namespace

struct database::impl {
    impl(postgres_config c, memory_budget& answers_budget) : cfg(std::move(c)), answers(answers_budget) {
        // Workers pass work on to the isolated workers and to the flush, never the other way round, so those end last.
        groups.resize(6);
        append_workers(groups[0], reads.workers());
        append_workers(groups[1], history.workers());
        groups[2] = {&writes.kept_outcomes().worker()};
        append_workers(groups[3], writes.workers());
        append_workers(groups[4], writes.isolated_workers());
        groups[5] = {&flush.worker()};
    }

    void enforce_deadlines() {
        std::unique_lock lock(mutex);
        while (!wake.wait_for(lock, enforcement_interval, [this] { return ends; })) {
            const auto now = std::chrono::steady_clock::now();
            for (const auto& group : groups) {
                for (auto* member : group)
                    member->enforce_deadlines(now);
            }
            reads.enforce_deadlines(now);
            history.enforce_deadlines(now);
            if (auto work = sweep.next_batch(now)) writes.least_loaded_worker().submit(std::move(work));
            listener.enforce_deadlines(now);
        }
    }

    /// Called after the workers have ended, because the connection of one that waits for an unresponsive server has to
    /// be cut.
    void end_enforcement() {
        listener.stop();
        {
            const std::lock_guard lock(mutex);
            ends = true;
        }
        wake.notify_all();
        if (thread.joinable()) thread.join();
    }

    static void end(const std::vector<worker*>& group) {
        for (auto* member : group)
            member->abandon();
        for (auto* member : group)
            member->join();
    }

    /// Runs work of the start-up on a connection of its own. Errors carry the server's message.
    template <class Work>
    std::invoke_result_t<Work, session&> run_at_start(Work work) {
        session_slot slot(cfg);
        try {
            return work(slot.get());
        } catch (const session_lost& e) {
            return unavailable(std::string("PostgreSQL can't be reached: ") + e.what());
        } catch (const statement_failed& e) {
            if (e.error.sqlstate == "25006") return unavailable_because(cause_of(e.error.sqlstate) + read_only_advice);
            failure refused = unavailable("PostgreSQL refused: " + e.error.message);
            refused.facts["sqlstate"] = e.error.sqlstate;
            return refused;
        }
    }

    postgres_config cfg;
    memory_budget& answers;
    catalog_store catalogs;
    queued_jobs queued{cfg.queue_max};
    outcome_sweep sweep;
    group_commit flush{cfg};
    write_executor writes{cfg, queued, catalogs, answers, flush};
    read_pool reads{cfg, table_read_limits(cfg)};
    read_pool history{cfg, history_read_limits(cfg)};
    shared_check readiness{readiness_reuse_time};
    std::vector<std::vector<worker*>> groups;  ///< In the order in which they end.
    catalog_listener listener{cfg, catalogs};
    std::mutex mutex;
    std::condition_variable wake;
    bool ends = false;
    std::thread thread;
};

database::database(postgres_config cfg, memory_budget& answers)
    : impl_(std::make_unique<impl>(std::move(cfg), answers)) {}

database::~database() {
    for (const auto& group : impl_->groups)
        impl::end(group);
    impl_->end_enforcement();
}

result<void> database::check() {
    return impl_->run_at_start([](session& session) { return check_schema(session); });
}

result<std::chrono::milliseconds> database::join_cluster(membership m) {
    return impl_->run_at_start([&m](session& session) { return pg::join_cluster(session, std::move(m)); });
}

void database::start() {
    for (const auto& group : impl_->groups) {
        for (auto* member : group)
            member->start();
    }
    impl_->listener.start();
    impl_->thread = std::thread([state = impl_.get()] { state->enforce_deadlines(); });
}

void database::drain(deadline until) {
    const auto wait_while = [until](auto is_true) {
        while (is_true() && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(end_poll_interval);
    };
    wait_while([this] { return impl_->reads.waiting() + impl_->history.waiting() > 0; });
    for (const auto& group : impl_->groups) {
        for (auto* member : group)
            member->finish();
        wait_while([&group] { return !std::ranges::all_of(group, &worker::is_done); });
        impl::end(group);
    }
    impl_->end_enforcement();
}

write_executor& database::writes() {
    return impl_->writes;
}
read_pool& database::history_pool() {
    return impl_->history;
}
group_commit& database::flush() {
    return impl_->flush;
}

void database::submit(const worker_choice& where, std::unique_ptr<job> work) {
    switch (where.kind_) {
        case worker_choice::kind::any_worker:
            return impl_->writes.least_loaded_worker().submit(std::move(work));
        case worker_choice::kind::in_order: {
            auto [chosen, ticket] = impl_->writes.isolate(where.resources_, where.principal_);
            work->ticket = std::move(ticket);
            return chosen.submit(std::move(work));
        }
        case worker_choice::kind::history:
            return impl_->history.submit({}, read_cost::cheap, std::move(work));
    }
}

asio::awaitable<result<history_page>> database::read_history(std::string principal, read_cost cost, history_query query,
                                                             deadline until) {
    return read(std::move(principal), cost, until,
                [query = std::move(query)](session& session) { return pg::read_history(session, query); });
}

asio::awaitable<result<read_outcome>> database::read_rows(std::string principal, read_request request, deadline until) {
    auto work = [this, principal, request = std::move(request), until](session_slot& slot) {
        return run_read(slot, impl_->catalogs, impl_->answers, principal, request, until);
    };
    return read_durably<read_outcome>(impl_->reads, impl_->flush, std::move(principal), read_cost::cheap, until,
                                      std::move(work));
}

asio::awaitable<result<std::vector<fence_state>>> database::raise_fences(fences_to_raise wanted, actor initiator,
                                                                         std::string reason, deadline until) {
    auto where = worker_choice::in_order(lockcore::all_resources(wanted), initiator.principal);
    // Even where it raises nothing, its row locks make its commit wait for the disk, and so for fences raised before.
    return run(std::move(where), until,
               [wanted = std::move(wanted), initiator = std::move(initiator), reason = std::move(reason)](
                   session& session) { return pg::raise_fences(session, wanted, initiator, reason); });
}

asio::awaitable<result<fence_state>> database::repair_fence(lockcore::resource_name resource,
                                                            lockcore::fencing_token new_fence, actor initiator,
                                                            std::string reason, deadline until) {
    auto where = worker_choice::in_order({resource}, initiator.principal);
    // Not repeated after a lost connection: it may have been made, and others may have raised the fence since.
    return run_once<fence_state>(std::move(where), until,
                                 [resource = std::move(resource), new_fence, initiator = std::move(initiator),
                                  reason = std::move(reason)](session_slot& slot) -> result<fence_state> {
                                     return pg::repair_fence(slot.get(), resource, new_fence, initiator, reason);
                                 });
}

asio::awaitable<result<void>> database::ping(deadline until) {
    auto work = [](session_slot& slot) -> result<void> {
        const auto rows = retry_once_on_new_session(slot, [](session& session) {
            return session.exec(
                "select pg_catalog.current_setting('transaction_read_only') = 'on', current, "
                "pg_catalog.to_regclass('fencing.guard') is null or pg_catalog.to_regclass('fencing.history') is null "
                "from fencing.storage_generation_state()",
                {});
        });
        if (rows[0][2].as<bool>()) return unavailable_without_guard();
        if (!rows[0][0].as<bool>()) {
            if (rows[0][1].as<bool>()) return {};
            return unavailable_during_change();
        }
        slot.drop();  // where the connection string names several servers, another one may accept writes now
        return unavailable_because(cause_of("25006"));
    };
    auto check = [this, until, work = std::move(work)](shared_check::caller_ptr callers) {
        impl_->writes.least_loaded_worker().submit(
            std::make_unique<session_job<void>>(until, effect::none, std::string(), work, std::move(callers)));
    };
    return await_reply<void>(effect::none, [this, check = std::move(check)](shared_check::caller_ptr caller) {
        impl_->readiness.ask(std::move(caller), check);
    });
}

executor_status database::status() const {
    executor_status out;
    out.workers = impl_->writes.workers().size();
    for (const auto& member : impl_->writes.workers()) {
        if (member->is_disconnected()) ++out.disconnected;
        if (member->load() > 0) ++out.busy;
    }
    out.queued = impl_->queued.value() + impl_->reads.waiting() + impl_->history.waiting();
    out.queue_max = impl_->cfg.queue_max;
    return out;
}

const batch_sizes& database::batches() const {
    return impl_->writes.batches();
}

std::vector<std::pair<std::string_view, const work_times*>> database::times() const {
    return {{"writes", &impl_->queued.times()},
            {"reads", &impl_->reads.times()},
            {"history", &impl_->history.times()},
            {"flush", &impl_->flush.times()}};
}

}  // namespace fencegate::pg
