#include <gateway/pg/read/read_pool.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>

#include <lockcore/invariant.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencegate::pg {
namespace {

/// Maximum number of searches, summaries and exports of the history that wait for one principal.
constexpr std::size_t expensive_waiting_max = 16;

bool is_expensive(read_cost cost) {
    return cost != read_cost::cheap;
}

}  // namespace

read_limits table_read_limits(const postgres_config& cfg) {
    read_limits out;
    out.workers = std::max(cfg.connections, 1U);
    out.running_per_principal = share_of_workers(out.workers);
    out.running_expensive = out.running_expensive_per_principal = out.workers;
    out.waiting = cfg.queue_max;
    out.waiting_per_principal = out.waiting_expensive_per_principal = std::max<std::size_t>(cfg.queue_max / 2, 1);
    return out;
}

read_limits history_read_limits(const postgres_config& cfg) {
    read_limits out = table_read_limits(cfg);
    out.workers = 3;
    out.running_per_principal = share_of_workers(out.workers);
    out.running_expensive = 2;
    out.running_expensive_per_principal = 1;
    out.waiting_expensive_per_principal = expensive_waiting_max;
    return out;
}

/// A read that a worker has. Its destructor lets the next read run.
class read_pool::running_read final : public job {
  public:
    running_read(read_pool& pool, principal_reads& entry, std::size_t worker_index, waiting_read read)
        : job(read.work->until()),
          pool_(pool),
          principal_reads_(entry),
          worker_index_(worker_index),
          read_(std::move(read)) {}
    ~running_read() override {
        read_.work.reset();
        pool_.finish_read(principal_reads_, read_.cost, worker_index_);
    }

    void run(session_slot& slot, std::span<const std::unique_ptr<job>> joined) noexcept override {
        read_.work->run(slot, joined);
    }
    void refuse(failure why) noexcept override { read_.work->refuse(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return read_.work->caller(); }

    worker& target() const { return *pool_.workers_[worker_index_]; }

  private:
    read_pool& pool_;
    principal_reads& principal_reads_;
    std::size_t worker_index_;
    waiting_read read_;
};

read_pool::read_pool(const postgres_config& cfg, read_limits limits)
    : limits_(limits), queued_(cfg.queue_max), busy_(limits.workers, false) {
    for (std::size_t i = 0; i < limits.workers; ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued_, worker_options{.connect_lazily = true}));
}

std::optional<failure> read_pool::check_limits(const principal_reads& entry, read_cost cost) const {
    if (waiting_ >= limits_.waiting) return queue_full_failure();
    if (entry.principal.empty() || cost == read_cost::continued) return std::nullopt;
    const bool too_many = entry.waiting.size() >= limits_.waiting_per_principal;
    if (!too_many && (!is_expensive(cost) || entry.waiting_expensive < limits_.waiting_expensive_per_principal))
        return std::nullopt;
    failure out =
        make_failure(errc::too_many_requests, too_many ? "Too many reads of this caller wait for PostgreSQL."
                                                       : "Too many searches, summaries and exports of this caller "
                                                         "wait for PostgreSQL.");
    out.retry_after = retry_after_unavailable;
    return out;
}

read_pool::principal_reads& read_pool::find_or_add_reads(const std::string& principal) {
    const auto found = std::ranges::find(reads_by_principal_, principal, &principal_reads::principal);
    if (found != reads_by_principal_.end()) return *found;
    auto& made = reads_by_principal_.emplace_back();
    made.principal = principal;
    return made;
}

void read_pool::submit(const std::string& principal, read_cost cost, std::unique_ptr<job> work) {
    std::optional<failure> why;
    {
        const std::lock_guard lock(mutex_);
        auto& entry = find_or_add_reads(principal);
        why = check_limits(entry, cost);
        if (!why) {
            entry.waiting.push_back({cost, std::move(work)});
            entry.waiting_expensive += is_expensive(cost) ? 1 : 0;
            ++waiting_;
        }
    }
    if (why) return work->refuse(std::move(*why));
    dispatch();
}

/// Returns a worker without a read. One that is disconnected refuses reads, so it is returned only if all are.
std::optional<std::size_t> read_pool::idle_worker() const {
    std::optional<std::size_t> refusing;
    bool is_connected = false;
    for (std::size_t i = 0; i < busy_.size(); ++i) {
        const bool disconnected = workers_[i]->is_disconnected();
        is_connected = is_connected || !disconnected;
        if (busy_[i]) continue;
        if (!disconnected) return i;
        refusing = i;
    }
    return is_connected ? std::nullopt : refusing;
}

/// Takes the next read that may run, together with the worker that is to run it; null if no read may run.
std::unique_ptr<read_pool::running_read> read_pool::take_next_read() {
    if (waiting_ == 0) return nullptr;
    const auto idle = idle_worker();
    if (!idle) return nullptr;
    for (auto entry = reads_by_principal_.begin(); entry != reads_by_principal_.end(); ++entry) {
        const bool is_gateway = entry->principal.empty();
        if (!is_gateway && entry->running >= limits_.running_per_principal) continue;
        const bool expensive_allowed =
            running_expensive_ < limits_.running_expensive &&
            (is_gateway || entry->running_expensive < limits_.running_expensive_per_principal);
        const auto found = std::ranges::find_if(
            entry->waiting, [&](const auto& read) { return expensive_allowed || !is_expensive(read.cost); });
        if (found == entry->waiting.end()) continue;
        auto read = std::move(*found);
        entry->waiting.erase(found);
        const std::size_t expensive = is_expensive(read.cost) ? 1 : 0;
        --waiting_;
        entry->waiting_expensive -= expensive;
        ++entry->running;
        entry->running_expensive += expensive;
        running_expensive_ += expensive;
        busy_[*idle] = true;
        reads_by_principal_.splice(reads_by_principal_.end(), reads_by_principal_, entry);
        return std::make_unique<running_read>(*this, *entry, *idle, std::move(read));
    }
    return nullptr;
}

/// Passes reads to idle workers. A worker that refuses a read is free again at once, which calls dispatch() again: that
/// call returns at once and the outer call continues, so that refusals never nest.
void read_pool::dispatch() {
    std::unique_lock lock(mutex_);
    if (std::exchange(dispatching_, true)) return;
    while (auto read = take_next_read()) {
        lock.unlock();
        auto& chosen = read->target();
        chosen.submit(std::move(read));
        lock.lock();
    }
    dispatching_ = false;
}

void read_pool::finish_read(principal_reads& entry, read_cost cost, std::size_t worker_index) {
    {
        const std::lock_guard lock(mutex_);
        const std::size_t expensive = is_expensive(cost) ? 1 : 0;
        LOCKCORE_INVARIANT(busy_[worker_index] && entry.running > 0 && running_expensive_ >= expensive);
        busy_[worker_index] = false;
        --entry.running;
        entry.running_expensive -= expensive;
        running_expensive_ -= expensive;
        if (entry.running == 0 && entry.waiting.empty())
            std::erase_if(reads_by_principal_, [&entry](const principal_reads& listed) { return &listed == &entry; });
    }
    dispatch();
}

void read_pool::enforce_deadlines(std::chrono::steady_clock::time_point now) {
    std::vector<std::unique_ptr<job>> late;
    {
        const std::lock_guard lock(mutex_);
        for (auto entry = reads_by_principal_.begin(); entry != reads_by_principal_.end();) {
            std::erase_if(entry->waiting, [&](waiting_read& read) {
                if (read.work->until() > now) return false;
                entry->waiting_expensive -= is_expensive(read.cost) ? 1 : 0;
                --waiting_;
                late.push_back(std::move(read.work));
                return true;
            });
            entry = entry->running == 0 && entry->waiting.empty() ? reads_by_principal_.erase(entry) : std::next(entry);
        }
    }
    for (auto& job : late)
        job->refuse(deadline_passed_failure());
}

std::size_t read_pool::waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
}

}  // namespace fencegate::pg
