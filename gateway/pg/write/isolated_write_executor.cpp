#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/write/isolated_write_executor.hpp>
#include <gateway/pg/write/transaction_run.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::pg {
namespace {

class isolated_job final : public job {
  public:
    isolated_job(pending_write write, catalog_store& catalogs, memory_budget& answers)
        : job(write.until), write_(std::move(write)), catalogs_(catalogs), answers_(answers) {}

    void run(session_slot& slot) noexcept override {
        slot_write_session session(slot);
        slot_catalog catalogs(slot, catalogs_);
        run_and_answer(session, catalogs, answers_, write_);
    }
    void refuse(failure why) noexcept override { write_.refuse(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return write_.caller; }

  private:
    pending_write write_;
    catalog_store& catalogs_;
    memory_budget& answers_;
};

}  // namespace

void run_and_answer(write_session& session, catalog_source& catalogs, memory_budget& answers,
                    pending_write& write) noexcept {
    auto outcome = attempt<write_outcome>(session, false, [&](write_session& attempted) {
        return run_isolated(attempted, catalogs, answers, write.request, write.until);
    });
    if (!outcome) return write.caller->answer(outcome.error());
    write.caller->answer(committed_write{std::move(*outcome)});
}

isolated_write_executor::isolated_write_executor(const postgres_config& cfg, std::atomic<std::size_t>& queued,
                                                 catalog_store& catalogs, memory_budget& answers)
    : catalogs_(catalogs), answers_(answers) {
    for (unsigned i = 0; i < std::max(cfg.connections, 1U); ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued, worker_options{{}, true, false}));
}

bool isolated_write_executor::has_writes_on(const std::vector<lockcore::resource_name>& resources) const {
    const std::lock_guard lock(mutex_);
    return !queues_.empty() &&
           std::ranges::any_of(resources, [this](const auto& resource) { return queues_.contains(resource.str()); });
}

std::size_t isolated_write_executor::choose_worker(const std::vector<lockcore::resource_name>& resources) const {
    for (const auto& resource : resources) {
        if (const auto found = queues_.find(resource.str()); found != queues_.end()) return found->second.worker;
    }
    const auto least_loaded = std::ranges::min_element(workers_, {}, &worker::load);
    return static_cast<std::size_t>(least_loaded - workers_.begin());
}

void isolated_write_executor::finish_write(const std::vector<lockcore::resource_name>& resources) {
    const std::lock_guard lock(mutex_);
    for (const auto& resource : resources) {
        const auto found = queues_.find(resource.str());
        if (--found->second.writes == 0) queues_.erase(found);
    }
}

void isolated_write_executor::submit(pending_write write) {
    auto resources = write.request.resources;
    std::size_t chosen = 0;
    {
        const std::lock_guard lock(mutex_);
        chosen = choose_worker(resources);
        for (const auto& resource : resources)
            ++queues_.try_emplace(resource.str(), resource_queue{chosen, 0}).first->second.writes;
    }
    write.ticket =
        std::shared_ptr<void>(nullptr, [this, resources = std::move(resources)](void*) { finish_write(resources); });
    workers_[chosen]->submit(std::make_unique<isolated_job>(std::move(write), catalogs_, answers_));
}

}  // namespace fencegate::pg
