#include <gateway/pg/write/write_executor.hpp>

#include <gateway/pg/executor/job.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
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

/// Whether the write calls a function. Such a write must not share a transaction: a function may take any time, and may
/// do what no rollback undoes.
bool calls_function(const write_request& request) {
    return std::ranges::any_of(request.operations,
                               [](const auto& operation) { return std::holds_alternative<call_operation>(operation); });
}

/// Whether the answer follows from data of another transaction that may not be on disk yet: from an outcome kept by it,
/// or from rows that made PostgreSQL refuse. The failure to reach PostgreSQL follows from no data.
bool reveals_unproven_data(const result<committed_write>& written) {
    if (written) return written->outcome.replayed;
    return written.error().durability_unproven && written.error().code != errc::storage_unavailable;
}

}  // namespace

void write_executor::run_batch(write_session& session, const std::vector<pending_lookup>& lookups) {
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
            out.push_back(read_key_state(rows.text(row, 0), rows.text(row, 1)));
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
    bool full = false;
    for (auto& write : waiting) {
        const auto& request = write.request;
        // Once one does not fit, all later ones wait, even smaller ones: those with one first resource stay in order.
        full = full || (!batch.empty() && operations + request.operations.size() > shared_operations_max);
        if (full || (!batch.empty() && highest > write.first_resource())) {
            later.push_back(std::move(write));
            continue;
        }
        operations += request.operations.size();
        highest = request.resources.back().str();
        batch.push_back(std::move(write));
    }
    waiting = std::move(later);
    return batch;
}

write_executor::write_executor(const postgres_config& cfg, queued_jobs& queued, catalog_store& catalogs,
                               memory_budget& budget, group_commit& flush)
    : catalogs_(catalogs),
      budget_(budget),
      flush_(flush),
      isolated_(cfg, queued, catalogs, budget),
      lookup_worker_(cfg, queued, worker_options{.connect_lazily = true}) {
    for (unsigned i = 0; i < std::max(cfg.connections, 1U); ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued));
}

worker& write_executor::worker_for(const std::vector<lockcore::resource_name>& resources) const {
    return *workers_[resources.front().hash() % std::min(workers_.size(), write_workers_max)];
}

worker& write_executor::least_loaded_worker() const {
    return **std::ranges::min_element(workers_, {}, [](const auto& member) { return member->rank(); });
}

flush_mode write_executor::choose_flush_mode() const {
    if (!flush_.is_available()) return flush_mode::by_commit;
    return flush_.is_busy() ? flush_mode::deferred : flush_mode::deferred_if_shared;
}

void write_executor::run_batch(session_slot& slot, std::vector<pending_write> writes) {
    sizes_.count(writes.size());
    slot_catalog catalogs(slot, catalogs_);
    sort_by_resource(writes);
    while (!writes.empty()) {
        // Before each batch, because writes of the one before may wait now.
        std::vector<pending_write> waiting;
        for (auto& write : writes) {
            if (calls_function(write.request) || isolated_.has_writes_on(write.request.resources)) {
                isolated_.submit(std::move(write), later_writes::in_its_queue);
            } else {
                waiting.push_back(std::move(write));
            }
        }
        writes = std::move(waiting);
        if (writes.empty()) break;
        auto unanswered =
            run_and_answer_batch(slot, catalogs, budget_, take_next_batch(writes), refused_, choose_flush_mode());
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
        auto& chosen = worker_for(request.resources);
        chosen.submit(std::make_unique<batched_job<write_executor, pending_write>>(
            *this, pending_write{std::move(request), until, std::move(caller)}));
    };
    auto written = co_await await_reply<committed_write>(effect::by_commit, std::move(submit));
    if (!reveals_unproven_data(written)) co_return written;
    auto why = co_await flush_.require_durable(began, until);
    if (why) co_return std::move(*why);
    co_return written;
}

asio::awaitable<result<std::optional<write_outcome>>> write_executor::find_outcome(std::string principal,
                                                                                   idempotency_key key,
                                                                                   deadline until) {
    const auto began = clock::now();
    auto submit = [this, until, looked_up = outcome_key{std::move(principal), std::move(key)}](
                      std::shared_ptr<caller_awaiting<found_outcome>> caller) mutable {
        lookup_worker_.submit(std::make_unique<batched_job<write_executor, pending_lookup>>(
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

}  // namespace fencegate::pg
