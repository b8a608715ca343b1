#include <gateway/pg/session_slot.hpp>

#include <spdlog/spdlog.h>

#include <sys/socket.h>

#include <algorithm>

namespace fencegate::pg {

session& session_slot::get() {
    if (session_ && !session_->spent()) return *session_;
    if (!session_ && std::chrono::steady_clock::now() < retry_at_) throw session_lost("PostgreSQL is away");
    return connect();
}

session& session_slot::connect() {
    drop();
    try {
        session_ = std::make_unique<session>(cfg_);
        {
            const std::lock_guard lock(watched_);
            socket_ = session_->socket();
        }
        session_->configure(cfg_);
        connected_since_ = std::chrono::steady_clock::now();
    } catch (const std::exception& e) {
        drop();
        // Once an outage, not once a try.
        if (backoff_ == reconnect_backoff_min) spdlog::warn("PostgreSQL can't be reached: {}", e.what());
        retry_at_ = std::chrono::steady_clock::now() + backoff_;
        backoff_ = std::min(backoff_ * 2, reconnect_backoff_max);
        throw session_lost(e.what());
    }
    if (backoff_ != reconnect_backoff_min) spdlog::info("PostgreSQL is back");
    backoff_ = reconnect_backoff_min;
    return *session_;
}

void session_slot::drop() {
    {
        const std::lock_guard lock(watched_);
        socket_ = -1;
    }
    session_.reset();
}

void session_slot::tidy() {
    if (session_ && session_->disturbed()) drop();
}

void session_slot::expect_answer_by(deadline until) {
    const std::lock_guard lock(watched_);
    overdue_at_ = until < deadline::max() - silence_max ? until + silence_max : deadline::max();
}

void session_slot::expect_nothing() {
    const std::lock_guard lock(watched_);
    overdue_at_ = deadline::max();
}

bool session_slot::cut_if_overdue(std::chrono::steady_clock::time_point now) {
    const std::lock_guard lock(watched_);
    if (now < overdue_at_ || socket_ < 0) return false;
    ::shutdown(socket_, SHUT_RDWR);
    overdue_at_ = deadline::max();
    return true;
}

}  // namespace fencegate::pg
