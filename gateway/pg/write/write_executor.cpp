#include <gateway/pg/write/write_executor.hpp>

#include <gateway/pg/executor/job.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <variant>

namespace fencegate::pg {
namespace {

namespace asio = boost::asio;
using clock = std::chrono::steady_clock;

/// Deletes at most `count_max` expired outcomes and returns their number. Throws as session::exec does.
std::size_t forget_outcomes(session& session, std::size_t count_max) {
    return session.exec("select fencing.forget_outcomes($1::integer)", {std::to_string(count_max)})[0][0]
        .as<std::size_t>();
}

/// Maximum number of workers that take batches: with more of them batches would be smaller, and a batch of half the
/// size costs almost as much. The other workers run other statements.
constexpr std::size_t write_workers_max = 2;

/// Whether the write must not share a transaction: it calls a function, which may take any time, and may do what no
/// rollback undoes; or its lease shares resources, so that others wait for its end, and it locks rows of the guard in
/// another order than that of their names.
bool runs_alone(const write_request& request) {
    const auto is_call = [](const auto& each) { return std::holds_alternative<call_operation>(each); };
    return !request.shared.empty() || std::ranges::any_of(request.operations, is_call);
}

/// The answers to the writes of a group.
struct group_answers {
    explicit group_answers(std::size_t writes) : each(writes), missing(writes) {}

    std::vector<std::optional<result<committed_write>>> each;
    std::atomic<std::size_t> missing;
    std::shared_ptr<caller_awaiting<std::vector<result<committed_write>>>> caller{};
};

/// Waits for the answer to one write of a group. The last answer answers the caller of the group.
class group_member_caller final : public caller_awaiting<committed_write> {
  public:
    group_member_caller(std::shared_ptr<group_answers> answers, std::size_t index)
        : answers_(std::move(answers)), index_(index) {}

    void answer(result<committed_write> value) noexcept override {
        if (answered_.exchange(true)) return;
        answers_->each[index_] = std::move(value);
        if (--answers_->missing > 0) return;
        std::vector<result<committed_write>> out;
        for (auto& each : answers_->each)
            out.push_back(std::move(*each));
        answers_->caller->answer(std::move(out));
    }
    void give_up(bool unchanged) noexcept override { answer(unresponsive_failure(unchanged)); }
    boost::asio::any_io_executor executor() const override { return answers_->caller->executor(); }

  private:
    std::shared_ptr<group_answers> answers_;
    std::size_t index_;
    std::atomic<bool> answered_{false};
};

/// Gives up for all writes of a group that the worker has not passed on.
class group_job_caller final : public waiting_caller {
  public:
    void add(std::shared_ptr<waiting_caller> caller) { callers_.push_back(std::move(caller)); }
    void give_up(bool unchanged) noexcept override {
        for (const auto& caller : callers_) {
            if (caller->responsible == nullptr) caller->give_up(unchanged);
        }
    }

  private:
    std::vector<std::shared_ptr<waiting_caller>> callers_;
};

/// Returns the entry for a committed write that waits for the disk. The caller of a sealing write, or of one of a
/// group, is answered at once, so that its lease can be released while it waits for the disk.
undurable_write make_undurable_write(pending_write& write, write_outcome outcome) {
    undurable_write out{.write_id = outcome.write_id, .resource = write.first_resource(), .until = write.until};
    if (write.request.seal || write.group) {
        auto waiter = std::make_shared<durability_waiter>(write.caller->executor());
        write.caller->answer(committed_write{std::move(outcome), waiter});
        out.caller = waiter;
        out.answer = [waiter](const std::optional<failure>& why) { waiter->answer(why); };
        return out;
    }
    out.caller = write.caller;
    out.answer = [caller = write.caller, outcome = std::move(outcome)](const std::optional<failure>& why) mutable {
        if (why) {
            caller->answer(*why);
        } else {
            caller->answer(committed_write{std::move(outcome)});
        }
    };
    return out;
}

bool defers_flush(flush_mode flush, const std::vector<batch_write>& writes) {
    if (flush != flush_mode::deferred_if_shared) return flush == flush_mode::deferred;
    const auto planned = std::ranges::count_if(writes, [](const auto& each) { return each.write.has_value(); });
    return planned > 1 ||
           std::ranges::any_of(writes, [](const auto& each) { return each.write && each.write->request->seal; });
}

/// Plans the writes whose operations fit the catalog and whose deadline has not passed; the others take no part.
std::vector<batch_write> plan_batch(const std::vector<pending_write>& batch, const catalog& known) {
    std::vector<batch_write> out(batch.size());
    const auto now = clock::now();
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const auto& request = batch[i].request;
        if (now >= batch[i].until) continue;  // delayed by an earlier batch; its caller may have been answered
        auto statements =
            build_statements(known, request.operations, {request.return_rows, request.select, request.format});
        if (statements.faults.empty()) out[i].write = planned_write{&request, std::move(statements), batch[i].group};
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        for (std::size_t j = 0; out[i].write && j < out.size(); ++j) {
            if (!out[j].write && are_grouped(batch[i], batch[j])) out[i].write->keeps_token = true;
        }
    }
    return out;
}

/// Returns the latest deadline of the planned writes.
deadline latest_deadline(const std::vector<pending_write>& batch, const std::vector<batch_write>& writes) {
    auto out = deadline::min();
    for (std::size_t i = 0; i < batch.size(); ++i) {
        if (writes[i].write) out = std::max(out, batch[i].until);
    }
    return out;
}

/// Passes the result of a batch on: to the caller of the write, or to those who continue with it.
void settle(pending_write& write, batch_write& done, unanswered_writes& out) {
    switch (done.status) {
        case batch_result::retry_isolated:
        case batch_result::waited:
            if (clock::now() < write.until) {
                write.leave_group();
                out.left.push_back({.pending = std::move(write), .waited = done.status == batch_result::waited});
            } else {
                write.refuse(unavailable("PostgreSQL did not finish before the call's deadline; nothing was changed."));
            }
            return;
        case batch_result::committed:
            out.undurable.writes.push_back(make_undurable_write(write, std::move(done.outcome->value())));
            return;
        case batch_result::decided:
            break;
    }
    if (*done.outcome) {
        write.caller->answer(committed_write{std::move(done.outcome->value())});
    } else {
        write.caller->answer(done.outcome->error());
    }
}

}  // namespace

bool reveals_unproven_data(const result<committed_write>& written) {
    if (written) return written->outcome.replayed;
    return written.error().durability_unproven && written.error().code != errc::storage_unavailable;
}

outcome_lookup::outcome_lookup(const postgres_config& cfg, queued_jobs& queued, group_commit& flush)
    : flush_(flush), worker_(cfg, queued, worker_options{.connect_lazily = true}) {}

void outcome_lookup::run_batch(write_session& session, const std::vector<pending_lookup>& lookups) {
    using outcomes = std::vector<std::optional<result<write_outcome>>>;
    std::vector<const outcome_key*> keys;
    for (const auto& lookup : lookups)
        keys.push_back(&lookup.key);
    const auto find = [&keys](write_session& used) {
        const auto rows = run_statement(used, find_outcomes_sql, key_parameters(keys));
        if (rows.size() != static_cast<int>(keys.size()))
            throw std::length_error("find_outcomes returned another number of rows than keys");
        outcomes out;
        for (int row = 0; row < rows.size(); ++row)
            out.push_back(read_key_state(rows.text(row, key_column::state), rows.text(row, key_column::outcome)));
        return out;
    };
    auto found = attempt<outcomes>(session, effect::none,
                                   [&find](write_session& used) -> result<outcomes> { return retry_once(used, find); });
    for (std::size_t i = 0; i < lookups.size(); ++i) {
        if (!found) {
            lookups[i].caller->answer(found.error());
            continue;
        }
        found_outcome out;
        out.value = std::move((*found)[i]);
        lookups[i].caller->answer(std::move(out));
    }
}

asio::awaitable<result<std::optional<write_outcome>>> outcome_lookup::find(std::string principal, idempotency_key key,
                                                                           deadline until) {
    const auto began = clock::now();
    auto submit = [this, until, looked_up = outcome_key{std::move(principal), std::move(key)}](
                      std::shared_ptr<caller_awaiting<found_outcome>> caller) mutable {
        worker_.submit(std::make_unique<batched_job<outcome_lookup, pending_lookup>>(
            *this, pending_lookup{std::move(looked_up), until, std::move(caller)}));
    };
    auto found = co_await await_reply<found_outcome>(effect::none, std::move(submit));
    if (!found) co_return found.error();
    if (!found->value) co_return std::nullopt;
    auto why = co_await flush_.require_durable(began, until);
    if (why) co_return std::move(*why);
    if (!*found->value) co_return found->value->error();
    co_return std::optional(std::move(**found->value));
}

class outcome_sweep::batch final : public job {
  public:
    batch(deadline until, outcome_sweep& owner) : job(until), owner_(owner) {}

    void run(session_slot& slot, std::span<const std::unique_ptr<job>> /*joined*/) noexcept override {
        bool more = false;
        try {
            more = forget_outcomes(slot.get(), sweep_max) == sweep_max;
        } catch (const session_lost&) {
            slot.drop();
        } catch (const std::exception& e) {
            spdlog::warn("expired kept outcomes could not be deleted: {}", e.what());
        }
        end(more);
    }
    void refuse(failure /*why*/) noexcept override { end(false); }

  private:
    void end(bool more) {
        owner_.more_ = more;
        owner_.under_way_ = false;
    }

    outcome_sweep& owner_;
};

std::unique_ptr<job> outcome_sweep::next_batch(std::chrono::steady_clock::time_point now) {
    if (under_way_ || (!more_ && now - last_ < sweep_interval)) return nullptr;
    last_ = now;
    under_way_ = true;
    return std::make_unique<batch>(now + sweep_interval, *this);
}

void sort_by_resource(std::vector<pending_write>& waiting) {
    std::ranges::stable_sort(waiting, {}, &pending_write::first_resource);
}

std::vector<pending_write> take_next_batch(std::vector<pending_write>& waiting) {
    std::vector<pending_write> batch;
    std::vector<pending_write> later;
    std::size_t operations = 0;
    std::string highest;
    // Then all later writes wait, even smaller ones, so that those with one first resource stay in order.
    bool full = false;
    for (std::size_t i = 0; i < waiting.size();) {
        auto end = i + 1;
        auto added = waiting[i].request.operations.size();
        for (; end < waiting.size() && are_grouped(waiting[i], waiting[end]); ++end)
            added += waiting[end].request.operations.size();
        full = full || (!batch.empty() && operations + added > shared_operations_max);
        const bool waits = full || (!batch.empty() && highest > waiting[i].first_resource());
        if (!waits) {
            operations += added;
            highest = waiting[i].request.resources.back().str();
        }
        for (; i < end; ++i)
            (waits ? later : batch).push_back(std::move(waiting[i]));
    }
    waiting = std::move(later);
    return batch;
}

unanswered_writes run_and_answer_batch(write_session& session, catalog_source& catalogs, memory_budget& budget,
                                       std::vector<pending_write> batch, unjoinable_updates& unjoinable,
                                       flush_mode flush) noexcept {
    std::vector<batch_write> writes;
    unanswered_writes out;
    out.undurable.begun = clock::now();
    try {
        batch_options options;
        options.known = catalogs.get();
        options.unjoinable = &unjoinable;
        writes = plan_batch(batch, *options.known);
        options.defer_flush = defers_flush(flush, writes);
        const auto until = latest_deadline(batch, writes);
        run_shared_transaction(session, budget, writes, until, options);
    } catch (const session_lost& lost) {
        // No catalog could be read, so that nothing was sent.
        for (auto& write : batch)
            write.refuse(unavailable_because(lost.cause));
        return out;
    } catch (const std::exception& e) {
        // Nothing was changed: each write runs isolated, which decides its outcome.
        session.drop();
        writes = std::vector<batch_write>(batch.size());
        spdlog::warn("writes could not share a transaction: {}", e.what());
    }
    for (std::size_t i = 0; i < batch.size(); ++i)
        settle(batch[i], writes[i], out);
    return out;
}

write_executor::write_executor(const postgres_config& cfg, queued_jobs& queued, catalog_store& catalogs,
                               memory_budget& budget, group_commit& flush)
    : catalogs_(catalogs),
      budget_(budget),
      flush_(flush),
      isolated_(cfg, queued, catalogs, budget),
      kept_outcomes_(cfg, queued, flush) {
    for (unsigned i = 0; i < std::max(cfg.connections, 1U); ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued));
}

worker& write_executor::worker_for(const std::vector<lockcore::resource_name>& resources) const {
    return *workers_[resources.front().hash() % std::min(workers_.size(), write_workers_max)];
}

worker& write_executor::least_loaded_worker() const {
    return **std::ranges::min_element(workers_, {}, [](const auto& member) { return member->rank(); });
}

void write_executor::submit_writes(queued_writes queued) {
    auto& chosen = worker_for(queued.writes.front().request.resources);
    chosen.submit(std::make_unique<batched_job<write_executor, queued_writes>>(*this, std::move(queued)));
}

flush_mode write_executor::choose_flush_mode() const {
    if (!flush_.is_available()) return flush_mode::by_commit;
    return flush_.is_busy() ? flush_mode::deferred : flush_mode::deferred_if_shared;
}

void write_executor::run_batch(session_slot& slot, std::vector<queued_writes> queued) {
    std::vector<pending_write> writes;
    for (auto& each : queued)
        std::ranges::move(each.writes, std::back_inserter(writes));
    sizes_.count(writes.size());
    slot_catalog catalogs(slot, catalogs_);
    sort_by_resource(writes);
    while (!writes.empty()) {
        // Before each batch, because writes of the one before may wait now.
        std::vector<pending_write> waiting;
        for (std::size_t i = 0; i < writes.size();) {
            const bool isolate = runs_alone(writes[i].request) || isolated_.has_writes_on(writes[i].request.resources);
            auto end = i + 1;
            while (end < writes.size() && are_grouped(writes[i], writes[end]))
                ++end;
            for (; i < end; ++i) {
                if (!isolate) {
                    waiting.push_back(std::move(writes[i]));
                } else {
                    writes[i].leave_group();
                    isolated_.submit(std::move(writes[i]), later_writes::in_its_queue);
                }
            }
        }
        writes = std::move(waiting);
        if (writes.empty()) break;
        auto unanswered =
            run_and_answer_batch(slot, catalogs, budget_, take_next_batch(writes), unjoinable_, choose_flush_mode());
        for (auto& each : unanswered.left)
            isolated_.submit(std::move(each.pending),
                             each.waited ? later_writes::in_its_queue : later_writes::in_batches);
        if (!unanswered.undurable.writes.empty()) flush_.add(std::move(unanswered.undurable));
    }
}

asio::awaitable<result<committed_write>> write_executor::write(write_request request, deadline until) {
    if (request.resources.empty()) co_return make_failure(errc::internal_error, "A guarded write names no resource.");
    const auto began = clock::now();
    auto submit = [this, until,
                   request = std::move(request)](std::shared_ptr<caller_awaiting<committed_write>> caller) mutable {
        queued_writes queued{.writes = {}, .until = until, .caller = caller};
        queued.writes.push_back({.request = std::move(request), .until = until, .caller = std::move(caller)});
        submit_writes(std::move(queued));
    };
    auto written = co_await await_reply<committed_write>(effect::by_commit, std::move(submit));
    if (!reveals_unproven_data(written)) co_return written;
    auto why = co_await flush_.require_durable(began, until);
    if (why) co_return std::move(*why);
    co_return written;
}

asio::awaitable<std::vector<result<committed_write>>> write_executor::write_together(std::vector<timed_write> writes) {
    using answers = std::vector<result<committed_write>>;
    auto until = deadline::min();
    for (const auto& write : writes)
        until = std::max(until, write.until);
    auto submit = [this, until, writes = std::move(writes)](std::shared_ptr<caller_awaiting<answers>> caller) mutable {
        const auto group = std::make_shared<group_answers>(writes.size());
        group->caller = std::move(caller);
        auto job_caller = std::make_shared<group_job_caller>();
        queued_writes queued{.writes = {}, .until = until, .caller = job_caller};
        for (auto& write : writes) {
            auto member = std::make_shared<group_member_caller>(group, queued.writes.size());
            job_caller->add(member);
            queued.writes.push_back({.request = std::move(write.request),
                                     .until = write.until,
                                     .caller = std::move(member),
                                     .group = group});
        }
        submit_writes(std::move(queued));
    };
    auto answered = co_await await_reply<answers>(effect::by_commit, std::move(submit));
    co_return std::move(answered.value());  // each write has its own answer
}

}  // namespace fencegate::pg
