#include <gateway/pg/catalog/catalog_listener.hpp>

#include <spdlog/spdlog.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace fencegate::pg {

void catalog_listener::start() {
    wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    thread_ = std::thread([this] { loop(); });
}

void catalog_listener::stop() {
    ending_ = true;
    if (wake_ >= 0) ::eventfd_write(wake_, 1);
    slot_.cut_if_overdue(deadline::max());
    if (thread_.joinable()) thread_.join();
    if (wake_ >= 0) ::close(std::exchange(wake_, -1));
}

void catalog_listener::enforce_deadlines(std::chrono::steady_clock::time_point now) {
    slot_.cut_if_overdue(now);
}

void catalog_listener::loop() {
    while (!ending_) {
        try {
            listen();
        } catch (const session_lost&) {
            slot_.drop();
            pause(std::chrono::steady_clock::now() + reconnect_backoff_min);
        } catch (const std::exception& e) {
            slot_.drop();
            spdlog::error("the catalog can't be read: {}", e.what());
            pause(std::chrono::steady_clock::now() + catalog_recheck);
        }
        pause(slot_.retry_at());
    }
    slot_.drop();
}

/// Listens on one connection until stop() or until the connection is lost. Throws session_lost, statement_failed.
void catalog_listener::listen() {
    const auto expect_soon = [this] {
        slot_.expect_answer_by(std::chrono::steady_clock::now() + slot_.settings().statement_timeout);
    };
    slot_.connect_idle();
    auto& session = slot_.get();
    expect_soon();
    session.command("listen fencing_catalog");
    while (!ending_) {
        if (slot_.is_outdated()) throw session_lost("PostgreSQL may have been replaced");
        const auto now = std::chrono::steady_clock::now();
        const auto level = readings_.take(catalog_store::change_limit, now);
        if (!level.admitted) {
            pause(now + level.retry_after);
            continue;
        }
        expect_soon();
        catalogs_.reload(session);
        slot_.expect_nothing();
        const auto until = std::chrono::steady_clock::now() + catalog_recheck;
        for (auto left = catalog_recheck; left.count() > 0 && !ending_;
             left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())) {
            if (session.wait_for_notification(wake_, left)) break;
        }
    }
}

void catalog_listener::pause(std::chrono::steady_clock::time_point until) const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ending_) return;
    pollfd wake{wake_, POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(left.count()));
}

}  // namespace fencegate::pg
