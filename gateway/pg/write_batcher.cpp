#include <gateway/pg/commit_flush.hpp>
#include <gateway/pg/shared_write.hpp>
#include <gateway/pg/sqlstate_map.hpp>
#include <gateway/pg/write_batcher.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace fencegate::pg {
namespace {

bool calls_function(const write_request& request) {
    return std::any_of(request.operations.begin(), request.operations.end(),
                       [](const auto& one) { return std::holds_alternative<call_operation>(one); });
}

const std::string& first_resource(const std::unique_ptr<write_job>& one) {
    return one->request().resources.front().str();
}

void run_alone(session_slot& slot, write_job& one) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= one.until()) {
        one.refuse(unavailable("PostgreSQL was not done in the time that the call may take; nothing was changed."));
    } else if (!slot.connected() && now < slot.retry_at()) {
        // One of the batch has just tried in vain; not each of them has to wait for that.
        one.refuse(unavailable_because(slot.cause()));
    } else {
        one.run(slot);
    }
}

}  // namespace

side_lanes::side_lanes(const postgres_config& cfg, std::atomic<std::size_t>& queued) {
    for (unsigned i = 0; i < std::max(cfg.connections, 1u); ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued, worker_manner{nullptr, true}));
}

bool side_lanes::holds(const std::vector<lockcore::resource_name>& resources) const {
    const std::lock_guard lock(mutex_);
    return !places_.empty() && std::any_of(resources.begin(), resources.end(),
                                           [this](const auto& one) { return places_.contains(one.str()); });
}

std::size_t side_lanes::choose(const std::vector<lockcore::resource_name>& resources) const {
    for (const auto& one : resources) {
        if (const auto found = places_.find(one.str()); found != places_.end()) return found->second.lane;
    }
    const auto least = std::min_element(workers_.begin(), workers_.end(),
                                        [](const auto& a, const auto& b) { return a->load() < b->load(); });
    return static_cast<std::size_t>(least - workers_.begin());
}

void side_lanes::leave(const std::vector<lockcore::resource_name>& resources) {
    const std::lock_guard lock(mutex_);
    for (const auto& one : resources) {
        const auto found = places_.find(one.str());
        if (--found->second.writes == 0) places_.erase(found);
    }
}

void side_lanes::take(std::unique_ptr<write_job> work) {
    auto resources = work->request().resources;
    std::size_t lane = 0;
    {
        const std::lock_guard lock(mutex_);
        lane = choose(resources);
        for (const auto& one : resources) {
            auto& here = places_.try_emplace(one.str(), place{lane, 0}).first->second;
            ++here.writes;
        }
    }
    work->ticket =
        std::shared_ptr<void>(nullptr, [this, resources = std::move(resources)](void*) { leave(resources); });
    workers_[lane]->submit(std::move(work));
}

std::vector<std::unique_ptr<write_job>> next_batch(std::vector<std::unique_ptr<write_job>>& waiting) {
    std::vector<std::unique_ptr<write_job>> batch;
    std::vector<std::unique_ptr<write_job>> later;
    std::size_t operations = 0;
    const std::string* highest = nullptr;
    bool full = false;  // what follows waits, even if it is smaller: writes on one resource stay in order
    for (auto& one : waiting) {
        const auto& request = one->request();
        full = full || (!batch.empty() && operations + request.operations.size() > shared_operations_max);
        if (full || (!batch.empty() && *highest > request.resources.front().str())) {
            later.push_back(std::move(one));
            continue;
        }
        operations += request.operations.size();
        highest = &request.resources.back().str();
        batch.push_back(std::move(one));
    }
    waiting = std::move(later);
    return batch;
}

/// Sends aside what must not share; the rest sorted, writes on one resource in order of arrival.
write_batcher::jobs write_batcher::admit(std::vector<std::unique_ptr<job>> work) {
    jobs out;
    for (auto& any : work) {
        std::unique_ptr<write_job> one(static_cast<write_job*>(any.release()));
        if (one->request().resources.empty()) {
            one->refuse(make_failure(errc::internal_error, "A guarded write names no resource."));
        } else if (calls_function(one->request()) || aside_.holds(one->request().resources)) {
            aside_.take(std::move(one));
        } else {
            out.push_back(std::move(one));
        }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return first_resource(a) < first_resource(b); });
    return out;
}

void write_batcher::run(session_slot& slot, std::vector<std::unique_ptr<job>> work) {
    auto waiting = admit(std::move(work));
    while (!waiting.empty())
        run_transaction(slot, next_batch(waiting));
}

void write_batcher::run_transaction(session_slot& slot, jobs batch) {
    std::vector<shared_write> writes;
    std::vector<write_job*> shared;
    auto until = deadline::min();
    committed_writes committed{std::chrono::steady_clock::now(), {}};
    try {
        const auto known = catalogs_.get(slot.get());
        const auto now = std::chrono::steady_clock::now();
        for (const auto& one : batch) {
            if (now >= one->until()) continue;  // held up by a batch before it; its caller may have been answered
            auto plan =
                plan_write(*known, one->request().operations, {one->request().return_rows, one->request().select});
            if (!plan.faults.empty()) continue;
            auto& write = writes.emplace_back();
            write.request = &one->request();
            write.plan = std::move(plan);
            shared.push_back(one.get());
            until = std::max(until, one->until());
        }
        // Who is alone is answered sooner if COMMIT waits itself, unless there is a lease to be let go meanwhile.
        const bool later =
            flush_.serves() && (writes.size() > 1 || flush_.busy() || (writes.size() == 1 && writes[0].request->seal));
        run_shared(slot, writes, until,
                   {later ? durability::later : durability::awaited, known.get(), &refused_, &answers_});
    } catch (const std::exception& e) {
        // Before anything was sent: each tries for itself and says what it finds.
        slot.drop();
        spdlog::warn("writes could not share a transaction: {}", e.what());
    }
    std::size_t at = 0;
    jobs alone;
    for (auto& one : batch) {
        const bool planned = at < shared.size() && shared[at] == one.get();
        auto* write = planned ? &writes[at++] : nullptr;
        if (write == nullptr || write->fate == write_fate::alone) {
            alone.push_back(std::move(one));
        } else if (write->fate == write_fate::too_long) {
            aside_.take(std::move(one));
        } else if (write->fate == write_fate::committed) {
            if (auto rest = one->tell_visible(write->answer->value())) one = std::move(rest);
            committed.writes.emplace_back(std::move(one), std::move(write->answer->value()));
        } else {
            one->answer(std::move(*write->answer));
        }
    }
    if (!committed.writes.empty()) flush_.answer_when_on_disk(std::move(committed));
    for (auto& one : alone)
        run_alone(slot, *one);
}

}  // namespace fencegate::pg
