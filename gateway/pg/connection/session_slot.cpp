#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/schema/cluster.hpp>

#include <spdlog/spdlog.h>

#include <sys/socket.h>

#include <algorithm>

namespace fencegate::pg {
namespace {

constexpr const char* replaced_cause = "this PostgreSQL was replaced by another server, which is not reached";

}  // namespace

session& session_slot::get() {
    if (session_ && !session_->is_unusable()) {
        if (!is_outdated()) return *session_;
        if (session_->has_open_transaction()) {
            drop();
            throw session_lost("PostgreSQL may have been replaced during a transaction, which is rolled back");
        }
    }
    if (!session_ && std::chrono::steady_clock::now() < retry_at_)
        throw session_lost("PostgreSQL was unreachable a moment ago", cause_);
    connect();
    return *session_;
}

std::atomic<std::uint64_t> session_slot::newest_floor_{0}, session_slot::renewals_{0};

bool session_slot::require_floor(lockcore::epoch floor) {
    std::uint64_t newest = newest_floor_;
    while (newest < value_of(floor)) {
        if (!newest_floor_.compare_exchange_weak(newest, value_of(floor))) continue;
        renew_all();
        return true;
    }
    return false;
}

void session_slot::renew_all() {
    ++renewals_;
}

bool session_slot::is_outdated() const {
    return session_ && made_at_ != renewals_;
}

/// A server that lets nothing in may be used: the change of its generation goes on there.
void session_slot::check_server() {
    made_at_ = renewals_;
    const auto found = pg::check_server(*session_);
    if (found && value_of(*found) < newest_floor_)
        throw session_lost("the server was replaced by another: its floor is not the newest", replaced_cause);
    // The others may be connected to the server that this one has replaced: a write made here must not be flushed
    // there.
    if (found && require_floor(*found)) ++made_at_;  // not this session
}

void session_slot::connect() {
    drop();
    bool nothing_expected = false;
    try {
        session_ = std::make_unique<session>(cfg_);
        {
            const std::lock_guard lock(mutex_);
            socket_ = session_->socket();
            nothing_expected = overdue_at_ == deadline::max();
            const auto least = std::chrono::steady_clock::now() + connect_timeout + silence_max;
            overdue_at_ = nothing_expected ? least : std::max(overdue_at_, least);
        }
        session_->configure(cfg_);
        check_server();
        if (nothing_expected) expect_nothing();
        connected_since_ = std::chrono::steady_clock::now();
    } catch (const std::exception& e) {
        drop();
        if (nothing_expected) expect_nothing();
        const auto* lost = dynamic_cast<const session_lost*>(&e);
        cause_ = lost != nullptr ? lost->cause : "PostgreSQL can't be reached";
        // Logged once for each outage, not for each attempt.
        if (backoff_ == reconnect_backoff_min) spdlog::warn("PostgreSQL can't be reached: {}", e.what());
        retry_at_ = std::chrono::steady_clock::now() + backoff_;
        backoff_ = std::min(backoff_ * 2, reconnect_backoff_max);
        throw session_lost(e.what(), cause_);
    }
    if (backoff_ != reconnect_backoff_min) spdlog::info("PostgreSQL can be reached again");
    backoff_ = reconnect_backoff_min;
}

void session_slot::drop() {
    {
        const std::lock_guard lock(mutex_);
        socket_ = -1;
    }
    session_.reset();
}

void session_slot::reset_between_jobs() {
    if (!session_) return;
    if (session_->has_unsolicited_input() || session_->has_outdated_statements()) return drop();
    session_->begin_job();
    if (session_->has_open_transaction()) {
        spdlog::error("a transaction was left open on a connection to PostgreSQL, which is replaced");
        return drop();
    }
    try {
        session_->clean(cfg_);
        session_->drop_excess_statements();
    } catch (const std::exception&) {
        drop();
    }
}

void session_slot::begin_work(deadline until) {
    {
        const std::lock_guard lock(mutex_);
        committing_ = false;
        cut_ = cut::no;
    }
    expect_answer_by(until);
}

void session_slot::begin_commit() {
    const std::lock_guard lock(mutex_);
    if (cut_ != cut::no) throw session_lost("the connection was cut before the commit", unresponsive_cause);
    committing_ = true;
}

void session_slot::begin_transaction() {
    const std::lock_guard lock(mutex_);
    committing_ = false;
}

bool session_slot::was_cut() const {
    const std::lock_guard lock(mutex_);
    return cut_ != cut::no;
}

bool session_slot::known_not_committed() const {
    const std::lock_guard lock(mutex_);
    return cut_ == cut::before_commit;
}

void session_slot::expect_answer_by(deadline until) {
    const std::lock_guard lock(mutex_);
    overdue_at_ = until < deadline::max() - silence_max ? until + silence_max : deadline::max();
}

void session_slot::expect_nothing() {
    const std::lock_guard lock(mutex_);
    overdue_at_ = deadline::max();
}

bool session_slot::cut_if_overdue(std::chrono::steady_clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (now < overdue_at_) return false;
    // Also where there is no socket: the work under way is abandoned, whatever it waits for.
    if (cut_ == cut::no) cut_ = committing_ ? cut::in_commit : cut::before_commit;
    if (socket_ < 0) return false;
    ::shutdown(socket_, SHUT_RDWR);
    overdue_at_ = deadline::max();
    return true;
}

}  // namespace fencegate::pg
