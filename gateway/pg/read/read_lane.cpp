#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/read/read_lane.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencegate::pg {
namespace {

/// A principal's searches, summaries and exports of the history that may wait.
constexpr std::size_t expensive_waiting_max = 16;

/// All but a quarter of the workers, so that one principal's slow reads never take the last of several.
std::size_t principal_share(std::size_t workers) {
    return workers < 2 ? workers : workers - std::max<std::size_t>(workers / 4, 1);
}

bool is_expensive(read_cost cost) {
    return cost != read_cost::cheap;
}

}  // namespace

read_limits table_read_limits(const postgres_config& cfg) {
    read_limits out;
    out.workers = std::max(cfg.connections, 1U);
    out.running_per_principal = principal_share(out.workers);
    out.running_expensive = out.running_expensive_per_principal = out.workers;
    out.waiting = cfg.queue_max;
    out.waiting_per_principal = out.waiting_expensive_per_principal = std::max<std::size_t>(cfg.queue_max / 2, 1);
    return out;
}

read_limits history_read_limits(const postgres_config& cfg) {
    read_limits out = table_read_limits(cfg);
    out.workers = 3;
    out.running_per_principal = principal_share(out.workers);
    out.running_expensive = 2;
    out.running_expensive_per_principal = 1;
    out.waiting_expensive_per_principal = expensive_waiting_max;
    return out;
}

/// A read on its way through a worker. Its end makes room for the next.
class read_lane::running_read final : public job {
  public:
    running_read(read_lane& lane, share& of, std::size_t at, waiting_read read)
        : job(read.work->until()), lane_(lane), share_(of), at_(at), read_(std::move(read)) {}
    ~running_read() override {
        read_.work.reset();
        lane_.leave(share_, read_.cost, at_);
    }

    void run(session_slot& slot) noexcept override { read_.work->run(slot); }
    void refuse(failure why) noexcept override { read_.work->refuse(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return read_.work->caller(); }

    worker& target() const { return *lane_.workers_[at_]; }

  private:
    read_lane& lane_;
    share& share_;
    std::size_t at_;
    waiting_read read_;
};

read_lane::read_lane(const postgres_config& cfg, read_limits limits) : limits_(limits), busy_(limits.workers, false) {
    for (std::size_t i = 0; i < limits.workers; ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued_, worker_options{{}, true, false}));
}

std::optional<failure> read_lane::admit(const share& of, read_cost cost) const {
    if (waiting_ >= limits_.waiting) return full_failure();
    if (of.principal.empty() || cost == read_cost::continued) return std::nullopt;
    const bool too_many = of.waiting.size() >= limits_.waiting_per_principal;
    if (!too_many && (!is_expensive(cost) || of.waiting_expensive < limits_.waiting_expensive_per_principal))
        return std::nullopt;
    failure out =
        make_failure(errc::too_many_requests, too_many ? "Too many reads of this caller wait for PostgreSQL."
                                                       : "Too many searches, summaries and exports of this caller "
                                                         "wait for PostgreSQL.");
    out.retry_after = retry_after_unavailable;
    return out;
}

read_lane::share& read_lane::share_of(const std::string& principal) {
    const auto found = std::ranges::find(shares_, principal, &share::principal);
    if (found != shares_.end()) return *found;
    auto& made = shares_.emplace_back();
    made.principal = principal;
    return made;
}

void read_lane::submit(const std::string& principal, read_cost cost, std::unique_ptr<job> work) {
    std::optional<failure> why;
    {
        const std::lock_guard lock(mutex_);
        auto& of = share_of(principal);
        why = admit(of, cost);
        if (!why) {
            of.waiting.push_back({cost, std::move(work)});
            of.waiting_expensive += is_expensive(cost) ? 1 : 0;
            ++waiting_;
        }
    }
    if (why) return work->refuse(std::move(*why));
    dispatch();
}

/// One that PostgreSQL lets in, if there is one.
std::optional<std::size_t> read_lane::idle_worker() const {
    std::optional<std::size_t> out;
    for (std::size_t i = 0; i < busy_.size(); ++i) {
        if (busy_[i]) continue;
        if (!workers_[i]->away()) return i;
        if (!out) out = i;
    }
    return out;
}

/// The next read that may run, with the worker that is to run it; none if there is none.
std::unique_ptr<read_lane::running_read> read_lane::next() {
    if (waiting_ == 0) return nullptr;
    const auto idle = idle_worker();
    if (!idle) return nullptr;
    for (auto of = shares_.begin(); of != shares_.end(); ++of) {
        const bool own = of->principal.empty();
        if (!own && of->running >= limits_.running_per_principal) continue;
        const bool expensive_may = running_expensive_ < limits_.running_expensive &&
                                   (own || of->running_expensive < limits_.running_expensive_per_principal);
        const auto found = std::ranges::find_if(
            of->waiting, [&](const auto& one) { return expensive_may || !is_expensive(one.cost); });
        if (found == of->waiting.end()) continue;
        auto read = std::move(*found);
        of->waiting.erase(found);
        const std::size_t expensive = is_expensive(read.cost) ? 1 : 0;
        --waiting_;
        of->waiting_expensive -= expensive;
        ++of->running;
        of->running_expensive += expensive;
        running_expensive_ += expensive;
        busy_[*idle] = true;
        shares_.splice(shares_.end(), shares_, of);
        return std::make_unique<running_read>(*this, *of, *idle, std::move(read));
    }
    return nullptr;
}

/// Gives idle workers what may run. A worker that refuses frees itself at once: whoever is in here goes on, so that
/// refusals never nest.
void read_lane::dispatch() {
    std::unique_lock lock(mutex_);
    if (std::exchange(dispatching_, true)) return;
    while (auto read = next()) {
        lock.unlock();
        auto& to = read->target();
        to.submit(std::move(read));
        lock.lock();
    }
    dispatching_ = false;
}

void read_lane::leave(share& of, read_cost cost, std::size_t at) {
    {
        const std::lock_guard lock(mutex_);
        const std::size_t expensive = is_expensive(cost) ? 1 : 0;
        busy_[at] = false;
        --of.running;
        of.running_expensive -= expensive;
        running_expensive_ -= expensive;
        if (of.running == 0 && of.waiting.empty())
            std::erase_if(shares_, [&of](const share& one) { return &one == &of; });
    }
    dispatch();
}

void read_lane::enforce_deadlines(std::chrono::steady_clock::time_point now) {
    std::vector<std::unique_ptr<job>> late;
    {
        const std::lock_guard lock(mutex_);
        for (auto of = shares_.begin(); of != shares_.end();) {
            std::erase_if(of->waiting, [&](waiting_read& one) {
                if (one.work->until() > now) return false;
                of->waiting_expensive -= is_expensive(one.cost) ? 1 : 0;
                --waiting_;
                late.push_back(std::move(one.work));
                return true;
            });
            of = of->running == 0 && of->waiting.empty() ? shares_.erase(of) : std::next(of);
        }
    }
    for (auto& one : late)
        one->refuse(too_late_failure());
}

std::size_t read_lane::waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
}

}  // namespace fencegate::pg
