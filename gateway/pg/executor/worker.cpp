#include <gateway/pg/executor/worker.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>

#include <spdlog/spdlog.h>
#include <lockcore/invariant.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencegate::pg {
namespace {

failure shutdown_failure() {
    failure out = make_failure(errc::shutting_down, "This gateway is shutting down.");
    out.retry_after = retry_after_unavailable;
    return out;
}

}  // namespace

std::optional<failure> queued_jobs::try_add(const std::string& principal) {
    const std::lock_guard lock(mutex_);
    if (principal.empty()) {
        if (value_ >= most_ + own_jobs) return queue_full_failure();
        ++value_;
        ++of_gateway_;
        return std::nullopt;
    }
    if (value_ - of_gateway_ >= most_) return queue_full_failure();
    if (!by_principal_.try_add(principal, 1, std::max<std::size_t>(most_ / 2, 1))) {
        failure out = make_failure(errc::too_many_requests, "Too many calls of this principal wait for PostgreSQL.");
        out.retry_after = retry_after_unavailable;
        return out;
    }
    ++value_;
    return std::nullopt;
}

void queued_jobs::remove(const std::string& principal) {
    const std::lock_guard lock(mutex_);
    LOCKCORE_INVARIANT(value_ > 0);
    --value_;
    if (principal.empty()) {
        LOCKCORE_INVARIANT(of_gateway_ > 0);
        --of_gateway_;
        return;
    }
    by_principal_.remove(principal);
}

std::size_t queued_jobs::value() const {
    const std::lock_guard lock(mutex_);
    return value_;
}

void job_queue::push(job_ptr work) {
    const auto [found, is_new] = by_principal_.try_emplace(work->principal());
    if (is_new) {
        turns_.push_back({work->principal(), {}});
        found->second = std::prev(turns_.end());
    }
    found->second->jobs.push_back(std::move(work));
    ++size_;
}

job_queue::job_ptr job_queue::pop() {
    LOCKCORE_INVARIANT(!turns_.empty());
    const auto first = turns_.begin();
    job_ptr out = std::move(first->jobs.front());
    first->jobs.pop_front();
    --size_;
    if (first->jobs.empty()) {
        by_principal_.erase(first->principal);
        turns_.erase(first);
    } else {
        turns_.splice(turns_.end(), turns_, first);
    }
    return out;
}

std::vector<job_queue::job_ptr> job_queue::take_all() {
    std::vector<job_ptr> out;
    while (!empty())
        out.push_back(pop());
    return out;
}

std::vector<job_queue::job_ptr> job_queue::take_late(deadline now) {
    std::vector<job_ptr> out;
    for (auto entry = turns_.begin(); entry != turns_.end();) {
        std::erase_if(entry->jobs, [&](job_ptr& work) {
            if (work->until() > now) return false;
            out.push_back(std::move(work));
            return true;
        });
        if (entry->jobs.empty()) by_principal_.erase(entry->principal);
        entry = entry->jobs.empty() ? turns_.erase(entry) : std::next(entry);
    }
    size_ -= out.size();
    return out;
}

worker::worker(const postgres_config& cfg, queued_jobs& queued, worker_options options)
    : queued_(queued), options_(options), slot_(cfg) {}

worker::~worker() {
    abandon();
    join();
}

void worker::start() {
    thread_ = std::thread([this] { loop(); });
}

void worker::submit(std::unique_ptr<job> work) {
    std::unique_lock lock(mutex_);
    std::optional<failure> why;
    if (finishing_) {
        why = shutdown_failure();
    } else if (disconnected_ && !options_.queue_while_disconnected) {
        why = unavailable_because(cause_);
    } else {
        why = queued_.try_add(work->principal());
    }
    if (why) {
        lock.unlock();
        return work->refuse(std::move(*why));
    }
    load_.fetch_add(1, std::memory_order_relaxed);
    queue_.push(std::move(work));
    lock.unlock();
    wake_.notify_one();
}

/// Waits for jobs.
///
/// Out: the jobs to run next; empty: the worker is to end.
std::vector<std::unique_ptr<job>> worker::take_jobs() {
    std::vector<std::unique_ptr<job>> work;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
    while (!queue_.empty() && work.size() < jobs_max && (work.empty() || queue_.front().joins_batch())) {
        work.push_back(queue_.pop());
        queued_.remove(work.back()->principal());
        if (!work.back()->joins_batch()) break;
    }
    for (const auto& taken : work) {
        auto caller = taken->caller();
        if (!caller) continue;
        caller->responsible = this;
        under_way_.push_back({taken->until(), std::move(caller)});
    }
    return work;
}

void worker::reduce_load(std::size_t jobs) {
    const auto before = load_.fetch_sub(jobs, std::memory_order_relaxed);
    LOCKCORE_INVARIANT(before >= jobs);
}

std::vector<std::unique_ptr<job>> worker::take_queue() {
    const std::lock_guard lock(mutex_);
    auto out = queue_.take_all();
    for (const auto& taken : out)
        queued_.remove(taken->principal());
    reduce_load(out.size());
    return out;
}

void worker::refuse_all(const failure& why) {
    for (auto& work : take_queue())
        work->refuse(why);
}

/// Connects if there is no connection; after a failure waits until the next attempt is due. Called while no job is
/// under way.
bool worker::ensure_connected() {
    if (slot_.connected()) return true;
    bool connected = false;
    try {
        slot_.connect();
        connected = true;
    } catch (const session_lost&) {
    }
    slot_.expect_nothing();
    {
        const std::lock_guard lock(mutex_);
        disconnected_ = !connected;
        cause_ = slot_.cause();
    }
    if (connected) return true;
    if (!options_.queue_while_disconnected) refuse_all(unavailable_because(slot_.cause()));
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, slot_.retry_at(), [this] { return finishing_; });
    return false;
}

void worker::perform(std::vector<std::unique_ptr<job>> work) {
    const auto count = work.size();
    const auto now = std::chrono::steady_clock::now();
    auto last_moment = now;
    std::erase_if(work, [now, &last_moment](const auto& taken) {
        last_moment = std::max(last_moment, taken->until());
        if (now < taken->until()) return false;
        taken->refuse(deadline_passed_failure());
        return true;
    });
    if (!work.empty()) {
        slot_.begin_work(last_moment);
        slot_.reset_between_jobs();
        work.front()->run(slot_, std::span<const std::unique_ptr<job>>(work).subspan(1));
        slot_.expect_nothing();
        queued_.times().count(std::chrono::steady_clock::now() - now);
    }
    reduce_load(count);
    const std::lock_guard lock(mutex_);
    under_way_.clear();
}

/// Waits for the first job. False: the worker is to end without having connected.
bool worker::wait_for_work() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
    return !queue_.empty();
}

void worker::loop() {
    bool connection_needed = !options_.connect_lazily;
    for (;;) {
        if (!connection_needed && !wait_for_work()) break;
        connection_needed = true;
        if (!ensure_connected()) {
            const std::lock_guard lock(mutex_);
            if (finishing_) break;
            continue;
        }
        auto work = take_jobs();
        if (work.empty()) break;
        perform(std::move(work));
    }
    refuse_all(shutdown_failure());
    slot_.drop();
    done_ = true;
}

void worker::enforce_deadlines(std::chrono::steady_clock::time_point now) {
    std::vector<std::unique_ptr<job>> late;
    {
        const std::lock_guard lock(mutex_);
        late = queue_.take_late(now);
        for (const auto& taken : late)
            queued_.remove(taken->principal());
        reduce_load(late.size());
    }
    for (auto& work : late)
        work->refuse(deadline_passed_failure());
    if (slot_.cut_if_overdue(now)) spdlog::warn("a connection to PostgreSQL was cut: it did not answer in time");
    give_up_unresponsive(now);
}

void worker::give_up_unresponsive(std::chrono::steady_clock::time_point now) {
    std::vector<under_way> unanswered;
    bool unchanged = false;
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(under_way_, [&](auto& overdue) {
            if (now < overdue.until + silence_max) return false;
            if (overdue.caller->responsible == this) unanswered.push_back(std::move(overdue));
            return true;
        });
        unchanged = slot_.known_not_committed();  // for this work: the next can't begin while the mutex is held
    }
    for (const auto& overdue : unanswered)
        overdue.caller->give_up(unchanged);
}

bool worker::is_disconnected() const {
    const std::lock_guard lock(mutex_);
    return disconnected_;
}

void worker::finish() {
    {
        const std::lock_guard lock(mutex_);
        finishing_ = true;
    }
    wake_.notify_all();
}

void worker::abandon() {
    finish();
    refuse_all(shutdown_failure());
    slot_.cut_if_overdue(deadline::max());
}

void worker::join() {
    if (thread_.joinable()) thread_.join();
}

}  // namespace fencegate::pg
