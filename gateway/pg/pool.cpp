#include <gateway/pg/catalog.hpp>
#include <gateway/pg/catalog_listener.hpp>
#include <gateway/pg/cluster.hpp>
#include <gateway/pg/commit_flush.hpp>
#include <gateway/pg/guarded_write.hpp>
#include <gateway/pg/history_reader.hpp>
#include <gateway/pg/history_writer.hpp>
#include <gateway/pg/kept_outcome.hpp>
#include <gateway/pg/outcome_lookup.hpp>
#include <gateway/pg/outcome_sweep.hpp>
#include <gateway/pg/pool.hpp>
#include <gateway/pg/read_lane.hpp>
#include <gateway/pg/snapshot_state.hpp>
#include <gateway/pg/sqlstate_map.hpp>
#include <gateway/pg/table_reader.hpp>
#include <gateway/pg/waiting_job.hpp>
#include <gateway/pg/worker.hpp>
#include <gateway/pg/write_batcher.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <thread>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;

/// How often queues are searched for work whose time is over.
constexpr std::chrono::milliseconds police_interval{100};

/// Refusals that tell nothing of what the database holds.
bool is_blind(const failure& why) {
    return why.code != errc::unprocessable && why.code != errc::stale_fencing_token;
}

/// More workers than this would take the writes that wait from each other: a batch of half the size costs almost as
/// much. The others are there for what reads.
constexpr std::size_t write_workers_max = 2;

}  // namespace

struct pool::impl {
    impl(postgres_config c, memory_budget& of_answers)
        : cfg(std::move(c)),
          answers(of_answers),
          aside(cfg, queued),
          flush(cfg),
          batcher(catalogs, answers, aside, flush),
          reads(cfg, table_read_limits(cfg)),
          history_reads(cfg, history_read_limits(cfg)) {
        const worker_manner manner{[this](session_slot& slot, std::vector<std::unique_ptr<job>> work) {
                                       batches.count(work.size());
                                       batcher.run(slot, std::move(work));
                                   },
                                   false};
        for (unsigned i = 0; i < std::max(cfg.connections, 1u); ++i)
            workers.push_back(std::make_unique<worker>(cfg, queued, manner));
        lookups.push_back(std::make_unique<worker>(cfg, queued, worker_manner{look_up_together, true}));
    }

    /// Workers hand on to the lanes beside them and to the flush, never the other way round: those end last.
    std::array<const std::vector<std::unique_ptr<worker>>*, 6> in_order_of_end() const {
        return {&reads.workers(), &history_reads.workers(), &lookups, &workers, &aside.workers(), &flush.workers()};
    }

    worker& of(const std::vector<lockcore::resource_name>& resources) {
        if (resources.empty()) return least_loaded(workers);
        return *workers[resources.front().hash() % std::min(workers.size(), write_workers_max)];
    }

    static worker& least_loaded(const std::vector<std::unique_ptr<worker>>& group) {
        return **std::min_element(group.begin(), group.end(),
                                  [](const auto& a, const auto& b) { return a->load() < b->load(); });
    }

    /// Reads the history: `read` may be done twice, and again where a crash may have taken back what it saw.
    template <class T, class Read>
    asio::awaitable<result<T>> read_history(std::string principal, read_cost cost, deadline until, Read read) {
        auto work = [read = std::move(read)](session_slot& slot) {
            auto value = retry_once_on_disconnect(slot, read);
            return snapshot_of<T>(std::move(value), fetch_snapshot_state(slot));
        };
        return read_durably<T>(history_reads, std::move(principal), cost, until, std::move(work));
    }

    /// Reads, and gives what was read once all that its snapshot showed is on disk. `read` gives a snapshot_of<T>.
    template <class T, class Read>
    asio::awaitable<result<T>> read_durably(read_lane& lane, std::string principal, read_cost cost, deadline until,
                                            Read read) {
        const auto shared = std::make_shared<const Read>(std::move(read));
        for (bool first = true;; first = false) {
            auto work = [shared](session_slot& slot) -> result<snapshot_of<T>> { return (*shared)(slot); };
            auto seen = co_await submit_read<snapshot_of<T>>(lane, principal, cost, until, std::move(work));
            if (!seen) co_return seen.error();
            const bool nothing_told = !seen->value && is_blind(seen->value.error());
            if (nothing_told || flush.is_durable(seen->state)) co_return std::move(seen->value);
            const auto durable = co_await wait_until_durable(seen->state.taken, until);
            if (!durable) co_return durable.error();
            if (*durable) co_return std::move(seen->value);
            if (!first) co_return unavailable("PostgreSQL stopped before what was read was on disk; read it again.");
        }
    }

    /// Waits until everything is on disk that was visible at `taken`; see snapshot_job.
    asio::awaitable<result<bool>> wait_until_durable(std::chrono::steady_clock::time_point taken, deadline until) {
        auto initiate = [this, taken, until](auto handler) {
            using waiting = waiting_snapshot<decltype(handler)>;
            flush.answer_when_durable(std::make_unique<waiting>(until, taken, std::move(handler)));
        };
        return asio::async_initiate<const asio::use_awaitable_t<>, void(result<bool>)>(std::move(initiate),
                                                                                       asio::use_awaitable);
    }

    /// The same behind something that can't simply be done again. Empty: it is on disk.
    asio::awaitable<std::optional<failure>> require_durable(std::chrono::steady_clock::time_point taken,
                                                            deadline until) {
        const auto durable = co_await wait_until_durable(taken, until);
        if (!durable) co_return durable.error();
        if (*durable) co_return std::nullopt;
        co_return unavailable("PostgreSQL stopped before the answer was on disk; nothing was changed.");
    }

    /// Gives `work` to `to` and waits for it. Not a coroutine: what it starts is posted, never completed in here.
    template <class T, class Work>
    asio::awaitable<result<T>> submit(worker& to, deadline until, bool changes, Work work) {
        const auto take = [&to](std::unique_ptr<job> made) { to.submit(std::move(made)); };
        return hand_over<T>(take, until, changes, std::move(work));
    }

    /// The same in a principal's share of `lane`.
    template <class T, class Work>
    asio::awaitable<result<T>> submit_read(read_lane& lane, std::string principal, read_cost cost, deadline until,
                                           Work work, bool changes = false) {
        auto take = [&lane, principal = std::move(principal), cost](std::unique_ptr<job> made) {
            lane.submit(principal, cost, std::move(made));
        };
        return hand_over<T>(std::move(take), until, changes, std::move(work));
    }

    template <class T, class Take, class Work>
    static asio::awaitable<result<T>> hand_over(Take take, deadline until, bool changes, Work work) {
        auto initiate = [take = std::move(take), until, changes](auto handler, Work w) {
            using handler_type = decltype(handler);
            take(
                std::make_unique<waiting_job<T, Work, handler_type>>(until, changes, std::move(w), std::move(handler)));
        };
        return asio::async_initiate<const asio::use_awaitable_t<>, void(result<T>)>(
            std::move(initiate), asio::use_awaitable, std::move(work));
    }

    /// One guarded write, as soon as it is visible.
    asio::awaitable<result<visible_write>> submit_write(write_request request, deadline until) {
        auto& to = of(request.resources);
        auto initiate = [this, &to, until](auto handler, write_request one) {
            using waiting = waiting_write<decltype(handler)>;
            to.submit(std::make_unique<waiting>(until, std::move(one), catalogs, answers, std::move(handler)));
        };
        return asio::async_initiate<const asio::use_awaitable_t<>, void(result<visible_write>)>(
            std::move(initiate), asio::use_awaitable, std::move(request));
    }

    asio::awaitable<result<found_outcome>> submit_lookup(key_of key, deadline until) {
        auto initiate = [this, until](auto handler, key_of of) {
            using handler_type = decltype(handler);
            lookups.front()->submit(
                std::make_unique<waiting_lookup<handler_type>>(until, std::move(of), std::move(handler)));
        };
        return asio::async_initiate<const asio::use_awaitable_t<>, void(result<found_outcome>)>(
            std::move(initiate), asio::use_awaitable, std::move(key));
    }

    void police() {
        std::unique_lock lock(police_mutex);
        while (!police_wake.wait_for(lock, police_interval, [this] { return police_ends; })) {
            const auto now = std::chrono::steady_clock::now();
            for (const auto* group : in_order_of_end()) {
                for (const auto& one : *group)
                    one->police(now);
            }
            reads.enforce_deadlines(now);
            history_reads.enforce_deadlines(now);
            if (auto work = sweep.due(now)) least_loaded(workers).submit(std::move(work));
            listener.police(now);
        }
    }

    void end_police() {
        {
            const std::lock_guard lock(police_mutex);
            police_ends = true;
        }
        police_wake.notify_all();
        if (police_thread.joinable()) police_thread.join();
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
    batch_sizes batches;
    side_lanes aside;
    commit_flush flush;
    write_batcher batcher;
    std::vector<std::unique_ptr<worker>> workers;
    read_lane reads;                               ///< Of tables and functions,
    read_lane history_reads;                       ///< of the history.
    std::vector<std::unique_ptr<worker>> lookups;  ///< One, so that those who look at the same time share a round trip.
    catalog_listener listener{cfg, catalogs};
    std::mutex police_mutex;
    std::condition_variable police_wake;
    bool police_ends = false;
    std::thread police_thread;
};

pool::pool(postgres_config cfg, memory_budget& answers) : impl_(std::make_unique<impl>(std::move(cfg), answers)) {}

pool::~pool() {
    for (const auto* group : impl_->in_order_of_end()) {
        for (const auto& one : *group)
            one->abandon();
        for (const auto& one : *group)
            one->join();
    }
    impl_->listener.stop();
    impl_->end_police();  // after the workers: one that hangs on a silent server needs to be cut
}

result<void> pool::check() {
    return impl_->at_start([](session& via) { return check_schema(via); });
}

result<void> pool::join_cluster(membership m) {
    return impl_->at_start([&m](session& via) { return join(via, m); });
}

void pool::start() {
    for (const auto* group : impl_->in_order_of_end()) {
        for (const auto& one : *group)
            one->start();
    }
    impl_->listener.start();
    impl_->police_thread = std::thread([state = impl_.get()] { state->police(); });
}

void pool::drain(deadline until) {
    const auto reads_wait = [this] { return impl_->reads.waiting() + impl_->history_reads.waiting() > 0; };
    while (reads_wait() && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    for (const auto* group : impl_->in_order_of_end()) {
        for (const auto& one : *group)
            one->finish();
        const auto all_done = [group] {
            return std::all_of(group->begin(), group->end(), [](const auto& one) { return one->done(); });
        };
        while (!all_done() && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        for (const auto& one : *group)
            one->abandon();
        for (const auto& one : *group)
            one->join();
    }
    impl_->listener.stop();
    impl_->end_police();
}

asio::awaitable<result<visible_write>> pool::write(write_request request, deadline until) {
    const auto began = std::chrono::steady_clock::now();
    auto seen = co_await impl_->submit_write(std::move(request), until);
    // That PostgreSQL can not be used tells nothing of what it holds.
    const bool unproven =
        seen ? seen->outcome.replayed : seen.error().unproven && seen.error().code != errc::storage_unavailable;
    if (!unproven) co_return seen;
    auto why = co_await impl_->require_durable(began, until);
    if (why) co_return std::move(*why);
    co_return seen;
}

asio::awaitable<result<read_outcome>> pool::read(std::string principal, read_request request, deadline until) {
    auto work = [state = impl_.get(), principal, request = std::move(request), until](session_slot& slot) {
        return run_read(slot, state->catalogs, state->answers, principal, request, until);
    };
    return impl_->read_durably<read_outcome>(impl_->reads, std::move(principal), read_cost::cheap, until,
                                             std::move(work));
}

asio::awaitable<result<found_outcome>> pool::find_outcome(std::string principal, idempotency under, deadline until) {
    const auto began = std::chrono::steady_clock::now();
    key_of key{std::move(principal), std::move(under)};
    auto found = co_await impl_->submit_lookup(std::move(key), until);
    if (!found || !found->value) co_return found;
    auto why = co_await impl_->require_durable(began, until);
    if (why) co_return std::move(*why);
    co_return found;
}

asio::awaitable<result<history_page>> pool::read_history(std::string principal, read_cost cost, history_query query,
                                                         deadline until) {
    return impl_->read_history<history_page>(
        std::move(principal), cost, until,
        [query = std::move(query)](session& via) { return pg::read_history(via, query); });
}

asio::awaitable<result<history_tail>> pool::read_history_tail(deadline until) {
    return impl_->read_history<history_tail>({}, read_cost::cheap, until,
                                             [](session& via) { return pg::read_history_tail(via); });
}

asio::awaitable<result<std::vector<history_count>>> pool::summarize_history(std::string principal,
                                                                            history_summary_query query,
                                                                            deadline until) {
    return impl_->read_history<std::vector<history_count>>(
        std::move(principal), read_cost::expensive, until,
        [query = std::move(query)](session& via) { return pg::summarize_history(via, query); });
}

asio::awaitable<result<resource_facts>> pool::read_resource(std::string principal, lockcore::resource_name resource,
                                                            deadline until) {
    return impl_->read_history<resource_facts>(
        std::move(principal), read_cost::cheap, until,
        [resource = std::move(resource)](session& via) { return pg::read_resource(via, resource.str()); });
}

asio::awaitable<result<history_upkeep>> pool::keep_history(unsigned keep_days, deadline until) {
    auto work = [keep_days](session_slot& slot) -> result<history_upkeep> {
        return retry_once_on_disconnect(slot, [keep_days](session& via) { return pg::keep_history(via, keep_days); });
    };
    return impl_->submit_read<history_upkeep>(impl_->history_reads, {}, read_cost::cheap, until, std::move(work), true);
}

asio::awaitable<result<std::vector<std::string>>> pool::find_guard_faults(deadline until) {
    auto work = [](session_slot& slot) -> result<std::vector<std::string>> {
        return retry_once_on_disconnect(slot, pg::find_guard_faults);
    };
    return impl_->submit_read<std::vector<std::string>>(impl_->history_reads, {}, read_cost::cheap, until,
                                                        std::move(work), true);
}

asio::awaitable<result<std::size_t>> pool::append_history(std::shared_ptr<const history_batch> batch, deadline until) {
    auto work = [batch = std::move(batch)](session_slot& slot) -> result<std::size_t> {
        try {
            return pg::append_history(slot.get(), *batch);
        } catch (const statement_failed& e) {
            const auto& code = e.error.sqlstate;
            if (!code.starts_with("42")) throw;
            // No fault of the events: the function is not there or not granted (any more). A new session plans anew.
            slot.drop();
            spdlog::error("fencing.append_events can't be called: {} {}", code, e.error.message);
            return unavailable("The history in PostgreSQL does not answer as it should; nothing was added.");
        }
    };
    return impl_->submit<std::size_t>(impl_->least_loaded(impl_->workers), until, true, std::move(work));
}

asio::awaitable<result<std::vector<fence_state>>> pool::raise_fences(std::vector<lockcore::resource_name> resources,
                                                                     lockcore::fencing_token to, actor by,
                                                                     std::string reason, deadline until) {
    auto& where = impl_->of(resources);
    auto work = [resources = std::move(resources), to, by = std::move(by),
                 reason = std::move(reason)](session_slot& slot) -> result<std::vector<fence_state>> {
        // Its locks alone make its commit wait for the disk, so that a fence that others have raised is there too.
        return retry_once_on_disconnect(slot, [&](session& via) { return raise(via, resources, to, by, reason); });
    };
    return impl_->submit<std::vector<fence_state>>(where, until, true, std::move(work));
}

asio::awaitable<result<fence_state>> pool::repair_fence(lockcore::resource_name resource, lockcore::fencing_token to,
                                                        actor by, std::string reason, deadline until) {
    auto& where = impl_->of({resource});
    auto work = [resource = std::move(resource), to, by = std::move(by),
                 reason = std::move(reason)](session_slot& slot) -> result<fence_state> {
        return retry_once_on_disconnect(slot, [&](session& via) { return repair(via, resource, to, by, reason); });
    };
    return impl_->submit<fence_state>(where, until, true, std::move(work));
}

asio::awaitable<result<lockcore::drawn_epoch>> pool::draw_epoch(lockcore::epoch_request request, deadline until) {
    auto work = [request = std::move(request)](session_slot& slot) -> result<lockcore::drawn_epoch> {
        return retry_once_on_disconnect(slot, [&](session& via) { return draw(via, request); });
    };
    return impl_->submit<lockcore::drawn_epoch>(impl_->least_loaded(impl_->workers), until, true, std::move(work));
}

asio::awaitable<result<lockcore::node_record>> pool::find_node(std::string node_name, deadline until) {
    auto work = [node_name = std::move(node_name)](session_slot& slot) -> result<lockcore::node_record> {
        return retry_once_on_disconnect(slot, [&](session& via) { return find_node_record(via, node_name); });
    };
    return impl_->submit<lockcore::node_record>(impl_->least_loaded(impl_->workers), until, true, std::move(work));
}

asio::awaitable<result<void>> pool::note_unsynced(std::string node_name, deadline until) {
    auto work = [node_name = std::move(node_name)](session_slot& slot) -> result<void> {
        retry_once_on_disconnect(slot, [&](session& via) { return note_node_unsynced(via, node_name); });
        return {};
    };
    return impl_->submit<void>(impl_->least_loaded(impl_->workers), until, true, std::move(work));
}

asio::awaitable<result<void>> pool::ping(deadline until) {
    auto work = [](session_slot& slot) -> result<void> {
        const bool read_only = retry_once_on_disconnect(slot, [](session& via) {
            return via.exec("select pg_catalog.current_setting('transaction_read_only') = 'on'", {})[0][0].as<bool>();
        });
        if (!read_only) return {};
        slot.drop();  // where the connection string names several servers, another one may have taken over
        return unavailable_because(cause_of("25006"));
    };
    return impl_->submit<void>(impl_->least_loaded(impl_->workers), until, false, std::move(work));
}

pool_status pool::status() const {
    pool_status out;
    out.workers = impl_->workers.size();
    for (const auto& one : impl_->workers) {
        if (one->away()) ++out.away;
        if (one->load() > 0) ++out.busy;
    }
    out.queued =
        impl_->queued.load(std::memory_order_relaxed) + impl_->reads.waiting() + impl_->history_reads.waiting();
    out.queue_max = impl_->cfg.queue_max;
    return out;
}

const batch_sizes& pool::batches() const {
    return impl_->batches;
}

}  // namespace fencegate::pg
