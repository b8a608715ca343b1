#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/write/isolated_write_executor.hpp>
#include <gateway/pg/write/transaction_run.hpp>

#include <algorithm>
#include <optional>
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
    const std::string& principal() const override { return write_.principal(); }

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

isolated_write_executor::isolated_write_executor(const postgres_config& cfg, queued_jobs& queued,
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

std::size_t isolated_write_executor::choose_worker(const std::vector<lockcore::resource_name>& resources,
                                                   const writes_by_worker& own_writes) const {
    for (const auto& resource : resources) {
        if (const auto found = queues_.find(resource.str()); found != queues_.end()) return found->second.worker;
    }
    const auto used = workers_.size() - static_cast<std::size_t>(std::ranges::count(own_writes, std::size_t{0}));
    const bool has_share = used >= principal_share(workers_.size());
    std::optional<std::size_t> out;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (has_share && own_writes[i] == 0) continue;
        if (!out || workers_[i]->rank() < workers_[*out]->rank()) out = i;
    }
    return *out;
}

void isolated_write_executor::finish_write(const std::vector<lockcore::resource_name>& resources,
                                           const std::string& principal, std::size_t worker) {
    const std::lock_guard lock(mutex_);
    const auto own = by_principal_.find(principal);
    --own->second[worker];
    if (std::ranges::all_of(own->second, [](std::size_t writes) { return writes == 0; })) by_principal_.erase(own);
    for (const auto& resource : resources) {
        const auto found = queues_.find(resource.str());
        if (--found->second.writes == 0) queues_.erase(found);
    }
}

isolated_place isolated_write_executor::join(std::vector<lockcore::resource_name> resources, std::string principal) {
    std::size_t chosen = 0;
    {
        const std::lock_guard lock(mutex_);
        auto& own_writes = by_principal_.try_emplace(principal, workers_.size()).first->second;
        chosen = choose_worker(resources, own_writes);
        ++own_writes[chosen];
        for (const auto& resource : resources)
            ++queues_.try_emplace(resource.str(), resource_queue{chosen, 0}).first->second.writes;
    }
    auto leave = [this, chosen, resources = std::move(resources), principal = std::move(principal)](void*) {
        finish_write(resources, principal, chosen);
    };
    return {workers_[chosen].get(), std::shared_ptr<void>(nullptr, std::move(leave))};
}

void isolated_write_executor::submit(pending_write write, bool later_too) {
    auto queued_on = later_too ? write.request.resources : std::vector<lockcore::resource_name>();
    auto place = join(std::move(queued_on), write.principal());
    write.ticket = std::move(place.ticket);
    place.chosen->submit(std::make_unique<isolated_job>(std::move(write), catalogs_, answers_));
}

}  // namespace fencegate::pg
