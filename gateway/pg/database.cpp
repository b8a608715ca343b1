#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/catalog/catalog_listener.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/pg/write/commit_flush.hpp>
#include <gateway/pg/write/outcome_sweep.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;

/// How often queues are searched for work whose time is over.
constexpr std::chrono::milliseconds enforcement_interval{100};

/// How often it is looked whether workers have ended.
constexpr std::chrono::milliseconds end_poll_interval{5};

void append(std::vector<worker*>& out, const std::vector<std::unique_ptr<worker>>& workers) {
    for (const auto& each : workers)
        out.push_back(each.get());
}

}  // namespace

struct database::impl {
    impl(postgres_config c, memory_budget& of_answers) : cfg(std::move(c)), answers(of_answers) {
        // Workers hand on to the isolated ones and to the flush, never the other way round: those end last.
        groups.resize(6);
        append(groups[0], reads.lane().workers());
        append(groups[1], history.lane().workers());
        groups[2] = {&writes.lookup_worker()};
        groups[3] = writes.workers();
        append(groups[4], writes.isolated_workers());
        groups[5] = {&flush.worker()};
    }

    void enforce_deadlines() {
        std::unique_lock lock(mutex);
        while (!wake.wait_for(lock, enforcement_interval, [this] { return ends; })) {
            const auto now = std::chrono::steady_clock::now();
            for (const auto& group : groups) {
                for (auto* each : group)
                    each->enforce_deadlines(now);
            }
            reads.lane().enforce_deadlines(now);
            history.lane().enforce_deadlines(now);
            if (auto work = sweep.due(now)) writes.least_loaded_worker().submit(std::move(work));
            listener.enforce_deadlines(now);
        }
    }

    /// After the workers: one that hangs on a silent server needs to be cut.
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
        for (auto* each : group)
            each->abandon();
        for (auto* each : group)
            each->join();
    }

    /// For start-up: work on a connection of its own. Errors carry the server's words.
    template <class Work>
    result<void> at_start(Work work) {
        session_slot slot(cfg);
        try {
            return work(slot.connect());
        } catch (const session_lost& e) {
            return unavailable(std::string("PostgreSQL can't be reached: ") + e.what());
        } catch (const statement_failed& e) {
            return unavailable("PostgreSQL refused: " + e.error.message);
        }
    }

    postgres_config cfg;
    memory_budget& answers;
    catalog_store catalogs;
    std::atomic<std::size_t> queued{0};
    outcome_sweep sweep;
    commit_flush flush{cfg};
    write_executor writes{cfg, queued, catalogs, answers, flush};
    read_executor reads{cfg, catalogs, answers, flush};
    history_executor history{cfg, writes, flush};
    fence_executor fences{writes};
    node_register nodes{writes};
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
    return impl_->at_start([](session& open) { return check_schema(open); });
}

result<void> database::join_cluster(membership m) {
    return impl_->at_start([&m](session& open) { return join(open, m); });
}

void database::start() {
    for (const auto& group : impl_->groups) {
        for (auto* each : group)
            each->start();
    }
    impl_->listener.start();
    impl_->thread = std::thread([state = impl_.get()] { state->enforce_deadlines(); });
}

void database::drain(deadline until) {
    const auto wait_while = [until](auto holds) {
        while (holds() && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(end_poll_interval);
    };
    wait_while([this] { return impl_->reads.lane().waiting() + impl_->history.lane().waiting() > 0; });
    for (const auto& group : impl_->groups) {
        for (auto* each : group)
            each->finish();
        wait_while([&group] { return !std::ranges::all_of(group, &worker::done); });
        impl::end(group);
    }
    impl_->end_enforcement();
}

write_executor& database::writes() {
    return impl_->writes;
}
read_executor& database::reads() {
    return impl_->reads;
}
history_executor& database::history() {
    return impl_->history;
}
fence_executor& database::fences() {
    return impl_->fences;
}
node_register& database::nodes() {
    return impl_->nodes;
}

asio::awaitable<result<void>> database::ping(deadline until) {
    auto work = [](session_slot& slot) -> result<void> {
        const bool read_only = retry_once_on_disconnect(slot, [](session& open) {
            return open.exec("select pg_catalog.current_setting('transaction_read_only') = 'on'", {})[0][0].as<bool>();
        });
        if (!read_only) return {};
        slot.drop();  // where the connection string names several servers, another one may have taken over
        return unavailable_because(cause_of("25006"));
    };
    auto& chosen = impl_->writes.least_loaded_worker();
    return await_work<void>(work_kind::reads, until, std::move(work),
                            [&chosen](std::unique_ptr<job> made) { chosen.submit(std::move(made)); });
}

executor_status database::status() const {
    executor_status out;
    out.workers = impl_->writes.workers().size();
    for (const auto* each : impl_->writes.workers()) {
        if (each->away()) ++out.away;
        if (each->load() > 0) ++out.busy;
    }
    out.queued =
        impl_->queued.load(std::memory_order_relaxed) + impl_->reads.lane().waiting() + impl_->history.lane().waiting();
    out.queue_max = impl_->cfg.queue_max;
    return out;
}

const batch_sizes& database::batches() const {
    return impl_->writes.batches();
}

}  // namespace fencegate::pg
