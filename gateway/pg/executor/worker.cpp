#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/worker.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

namespace fencegate::pg {
namespace {

failure closing_failure() {
    failure out = make_failure(errc::shutting_down, "This gateway is shutting down.");
    out.retry_after = retry_after_unavailable;
    return out;
}

}  // namespace

failure too_late_failure() {
    return unavailable("The call's time ran out before PostgreSQL could begin; nothing was changed.");
}

failure full_failure() {
    failure out = make_failure(errc::overloaded, "Too many calls wait for PostgreSQL.");
    out.retry_after = retry_after_unavailable;
    return out;
}

failure silent_failure(bool unchanged) {
    if (unchanged) return unavailable_because(silent_cause);
    failure out = unavailable("PostgreSQL does not answer; whether it was done is not known.");
    out.outcome_unknown = true;
    return out;
}

worker::worker(const postgres_config& cfg, std::atomic<std::size_t>& queued, worker_options options)
    : cfg_(cfg), queued_(queued), options_(std::move(options)), slot_(cfg) {}

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
        why = closing_failure();
    } else if (away_ && !options_.queue_while_disconnected) {
        why = unavailable_because(cause_);
    } else if (queued_.load(std::memory_order_relaxed) >= cfg_.queue_max) {
        why = full_failure();
    }
    if (why) {
        lock.unlock();
        return work->refuse(std::move(*why));
    }
    queued_.fetch_add(1, std::memory_order_relaxed);
    load_.fetch_add(1, std::memory_order_relaxed);
    queue_.push_back(std::move(work));
    lock.unlock();
    wake_.notify_one();
}

/// Empty: there is nothing left to do.
std::vector<std::unique_ptr<job>> worker::next() {
    std::vector<std::unique_ptr<job>> work;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
    const auto most = options_.finish_batch ? batch_max : 1;
    while (!queue_.empty() && work.size() < most && (work.empty() || queue_.front()->joins_batch())) {
        work.push_back(std::move(queue_.front()));
        queue_.pop_front();
        if (!work.back()->joins_batch()) break;
    }
    queued_.fetch_sub(work.size(), std::memory_order_relaxed);
    for (const auto& one : work) {
        auto caller = one->caller();
        if (!caller) continue;
        caller->holder = this;
        under_way_.push_back({one->until(), std::move(caller)});
    }
    return work;
}

std::deque<std::unique_ptr<job>> worker::take_all() {
    const std::lock_guard lock(mutex_);
    queued_.fetch_sub(queue_.size(), std::memory_order_relaxed);
    load_.fetch_sub(queue_.size(), std::memory_order_relaxed);
    return std::exchange(queue_, {});
}

void worker::refuse_all(const failure& why) {
    for (auto& work : take_all())
        work->refuse(why);
}

/// Without work at hand: connects if need be, and waits out the pause after a failure.
bool worker::ensure_connected() {
    if (slot_.connected()) return true;
    bool connected = false;
    try {
        slot_.connect_idle();
        connected = true;
    } catch (const session_lost&) {
    }
    slot_.expect_nothing();
    {
        const std::lock_guard lock(mutex_);
        away_ = !connected;
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
    std::erase_if(work, [now, &last_moment](const auto& one) {
        last_moment = std::max(last_moment, one->until());
        if (now < one->until()) return false;
        one->refuse(too_late_failure());
        return true;
    });
    if (!work.empty()) {
        slot_.begin_work(last_moment);
        slot_.tidy();
        const bool batch = work.front()->joins_batch();
        for (auto& one : work)
            one->run(slot_);
        if (batch) options_.finish_batch(slot_);
        slot_.expect_nothing();
    }
    load_.fetch_sub(count, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    under_way_.clear();
}

/// False: it is to end without ever having connected.
bool worker::wait_for_work() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return finishing_ || !queue_.empty(); });
    return !queue_.empty();
}

void worker::loop() {
    bool wanted = !options_.connect_lazily;
    for (;;) {
        if (!wanted && !wait_for_work()) break;
        wanted = true;
        if (!ensure_connected()) {
            const std::lock_guard lock(mutex_);
            if (finishing_) break;
            continue;
        }
        auto work = next();
        if (work.empty()) break;
        perform(std::move(work));
    }
    refuse_all(closing_failure());
    slot_.drop();
    done_ = true;
}

void worker::enforce_deadlines(std::chrono::steady_clock::time_point now) {
    std::deque<std::unique_ptr<job>> late;
    {
        const std::lock_guard lock(mutex_);
        const auto first_late = std::stable_partition(queue_.begin(), queue_.end(),
                                                      [now](const auto& work) { return work->until() > now; });
        std::move(first_late, queue_.end(), std::back_inserter(late));
        queue_.erase(first_late, queue_.end());
        queued_.fetch_sub(late.size(), std::memory_order_relaxed);
        load_.fetch_sub(late.size(), std::memory_order_relaxed);
    }
    for (auto& work : late)
        work->refuse(too_late_failure());
    if (slot_.cut_if_overdue(now)) spdlog::warn("a connection to PostgreSQL was cut: it did not answer in time");
    give_up_silent(now);
}

void worker::give_up_silent(std::chrono::steady_clock::time_point now) {
    std::vector<under_way> silent;
    bool unchanged = false;
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(under_way_, [&](auto& one) {
            if (now < one.until + silence_max) return false;
            if (one.caller->holder == this) silent.push_back(std::move(one));
            return true;
        });
        unchanged = slot_.surely_unchanged();  // of this work: the next can't begin under the lock
    }
    for (const auto& one : silent)
        one.caller->give_up(unchanged);
}

bool worker::away() const {
    const std::lock_guard lock(mutex_);
    return away_;
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
    refuse_all(closing_failure());
    slot_.cut_if_overdue(deadline::max());
}

void worker::join() {
    if (thread_.joinable()) thread_.join();
}

}  // namespace fencegate::pg
