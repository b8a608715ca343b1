#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/write/transaction_run.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

/// Maximum number of workers that take batches: with more of them batches would be smaller, and a batch of half the
/// size costs almost as much. The other workers run other statements.
constexpr std::size_t write_workers_max = 2;

/// Returns the entry for a committed write that waits for the disk.
undurable_write make_undurable_write(pending_write& write, write_outcome outcome) {
    undurable_write out{outcome.write_id, write.first_resource(), write.until, write.caller, {}};
    if (write.request.seal) {  // its lease can be released while it waits
        auto waiter = std::make_shared<durability_waiter>(write.caller->executor());
        write.caller->answer(committed_write{std::move(outcome), waiter});
        out.caller = waiter;
        out.answer = [waiter](const std::optional<failure>& why) { waiter->answer(why); };
        return out;
    }
    out.answer = [caller = write.caller, outcome = std::move(outcome)](const std::optional<failure>& why) mutable {
        if (why) {
            caller->answer(*why);
        } else {
            caller->answer(committed_write{std::move(outcome)});
        }
    };
    return out;
}

/// Plans the writes of the batch whose operations fit the catalog and whose deadline has not passed; the others are
/// left out. `places`: the indexes of the planned writes in the batch.
std::vector<batch_write> plan_statements(const std::vector<pending_write>& batch, const catalog& known,
                                         std::vector<std::size_t>& places) {
    std::vector<batch_write> out;
    const auto now = clock::now();
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const auto& request = batch[i].request;
        if (now >= batch[i].until) continue;  // delayed by an earlier batch; its caller may have been answered
        auto statements = plan_write(known, request.operations, {request.return_rows, request.select, request.format});
        if (!statements.faults.empty()) continue;
        out.push_back({{&request, std::move(statements)}});
        places.push_back(i);
    }
    return out;
}

/// Passes on a write that left its batch, unless its deadline has passed.
void isolate(pending_write write, bool later_too, const batch_callbacks& callbacks) {
    if (clock::now() < write.until) return callbacks.isolate(std::move(write), later_too);
    write.refuse(unavailable("PostgreSQL did not finish before the call's deadline; nothing was changed."));
}

}  // namespace

void run_and_answer_batch(write_session& session, catalog_source& catalogs, memory_budget& answers,
                          std::vector<pending_write> batch, group_refusals& refused,
                          const batch_callbacks& callbacks) noexcept {
    std::vector<batch_write> writes;
    std::vector<std::size_t> places;
    committed_transaction committed{clock::now(), {}};
    try {
        batch_options options;
        options.known = catalogs.get();
        options.refused = &refused;
        writes = plan_statements(batch, *options.known, places);
        options.defer_flush =
            !writes.empty() && callbacks.should_defer_flush(writes.size(), writes.front().write.request->seal);
        auto until = deadline::min();
        for (const auto place : places)
            until = std::max(until, batch[place].until);
        run_batch(session, answers, writes, until, options);
    } catch (const session_lost& lost) {
        // No catalog could be read, so that nothing was sent.
        for (auto& write : batch)
            write.refuse(unavailable_because(lost.cause));
        return;
    } catch (const std::exception& e) {
        // Nothing was changed: each write runs isolated, which decides its answer.
        session.drop();
        writes.clear();
        spdlog::warn("writes could not share a transaction: {}", e.what());
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        auto& write = batch[i];
        const bool planned = next < writes.size() && places[next] == i;
        auto* done = planned ? &writes[next++] : nullptr;
        if (done == nullptr || done->status == batch_result::retry_isolated || done->status == batch_result::waited) {
            isolate(std::move(write), done != nullptr && done->status == batch_result::waited, callbacks);
        } else if (done->status == batch_result::committed) {
            committed.writes.push_back(make_undurable_write(write, std::move(done->answer->value())));
        } else if (*done->answer) {
            write.caller->answer(committed_write{std::move(done->answer->value())});
        } else {
            write.caller->answer(done->answer->error());
        }
    }
    if (!committed.writes.empty()) callbacks.await_durable(std::move(committed));
}

write_executor::write_executor(const postgres_config& cfg, queued_jobs& queued, catalog_store& catalogs,
                               memory_budget& answers, commit_flush& flush)
    : catalogs_(catalogs),
      answers_(answers),
      flush_(flush),
      isolated_(cfg, queued, catalogs, answers),
      lookups_(
          cfg, queued,
          [](session_slot& slot, const std::vector<pending_lookup>& lookups) {
              slot_write_session session(slot);
              look_up_batch(session, lookups);
          },
          worker_options{{}, true, false}) {
    callbacks_.isolate = [this](pending_write write, bool later_too) { isolated_.submit(std::move(write), later_too); };
    callbacks_.await_durable = [this](committed_transaction transaction) { flush_.add(std::move(transaction)); };
    // A single write is answered sooner if COMMIT waits itself, unless a lease can be released while it waits.
    callbacks_.should_defer_flush = [this](std::size_t writes, bool sealed) {
        return flush_.is_available() && (writes > 1 || sealed || flush_.is_busy());
    };
    for (unsigned i = 0; i < std::max(cfg.connections, 1U); ++i) {
        workers_.push_back(std::make_unique<batch_worker<pending_write>>(
            cfg, queued,
            [this](session_slot& slot, std::vector<pending_write> writes) { run(slot, std::move(writes)); }));
        plain_workers_.push_back(&workers_.back()->worker());
    }
}

std::size_t write_executor::index_of(const std::vector<lockcore::resource_name>& resources) const {
    return resources.front().hash() % std::min(workers_.size(), write_workers_max);
}

worker& write_executor::least_loaded_worker() const {
    return **std::ranges::min_element(plain_workers_, {}, &worker::rank);
}

/// Passes writes that must not share a transaction to the isolated workers, and runs the others in batches.
void write_executor::run(session_slot& slot, std::vector<pending_write> writes) {
    sizes_.count(writes.size());
    slot_write_session session(slot);
    slot_catalog catalogs(slot, catalogs_);
    sort_by_resource(writes);
    while (!writes.empty()) {
        // Before each batch, because writes of the one before may wait now.
        std::vector<pending_write> waiting;
        for (auto& write : writes) {
            if (calls_function(write.request) || isolated_.has_writes_on(write.request.resources)) {
                isolated_.submit(std::move(write), true);
            } else {
                waiting.push_back(std::move(write));
            }
        }
        writes = std::move(waiting);
        if (writes.empty()) break;
        run_and_answer_batch(session, catalogs, answers_, take_next_batch(writes), refused_, callbacks_);
    }
}

asio::awaitable<result<committed_write>> write_executor::write(write_request request, deadline until) {
    if (request.resources.empty()) co_return make_failure(errc::internal_error, "A guarded write names no resource.");
    const auto began = clock::now();
    auto submit = [this, until,
                   request = std::move(request)](std::shared_ptr<caller_awaiting<committed_write>> caller) mutable {
        auto& chosen = *workers_[index_of(request.resources)];
        chosen.submit({std::move(request), until, std::move(caller)});
    };
    auto written = co_await await_reply<committed_write>(effect::by_commit, std::move(submit));
    // storage_unavailable says nothing about the data in PostgreSQL.
    const bool durability_unproven =
        written ? written->outcome.replayed
                : written.error().durability_unproven && written.error().code != errc::storage_unavailable;
    if (!durability_unproven) co_return written;
    auto why = co_await flush_.require_durable(began, until);
    if (why) co_return std::move(*why);
    co_return written;
}

asio::awaitable<result<found_outcome>> write_executor::find_outcome(std::string principal, idempotency_key key,
                                                                    deadline until) {
    const auto began = clock::now();
    auto submit = [this, until, looked_up = outcome_key{std::move(principal), std::move(key)}](
                      std::shared_ptr<caller_awaiting<found_outcome>> caller) mutable {
        lookups_.submit({std::move(looked_up), until, std::move(caller)});
    };
    auto found = co_await await_reply<found_outcome>(effect::none, std::move(submit));
    if (!found || !found->value) co_return found;
    auto why = co_await flush_.require_durable(began, until);
    if (why) co_return std::move(*why);
    co_return found;
}

}  // namespace fencegate::pg
