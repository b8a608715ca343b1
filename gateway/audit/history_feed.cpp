#include <gateway/audit/history_feed.hpp>

#include <gateway/runtime/background.hpp>

#include <boost/asio/awaitable.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace fencegate::audit {

std::optional<std::int64_t> history_horizon::advance(history_tail seen) {
    if (pending_) {
        const bool writer_remains = std::ranges::any_of(pending_->writers, [&seen](const auto& writer) {
            return std::ranges::find(seen.writers, writer) != seen.writers.end();
        });
        if (writer_remains) return settled_;
        settled_ = pending_->last_id;
        pending_.reset();
    }
    if (seen.writers.empty()) {
        settled_ = seen.last_id;
    } else {
        pending_ = std::move(seen);
    }
    return settled_;
}

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// The intervals of polling: while ids are not settled, while there are followers, and else. The last one is also the
/// longest wait of the first follower.
constexpr auto interval_while_unsettled = 25ms;
constexpr auto interval_while_followed = 100ms;
constexpr auto interval_without_followers = 1'000ms;
constexpr auto tail_read_timeout = 5s;
constexpr std::int64_t unknown = -1;

}  // namespace

struct history_feed::impl final : runtime::periodic {
    impl(pg::database& d, asio::io_context& i) : database(d), io(i) {}

    /// Reads the end of the history.
    asio::awaitable<duration> run_once() override {
        const auto until = std::chrono::steady_clock::now() + tail_read_timeout;
        auto tail = co_await database.read(std::string(), read_cost::cheap, until, pg::read_history_tail);
        if (tail) {
            if (const auto last = horizon.advance(std::move(*tail))) settled = *last;
        }
        if (!tail || followers == 0) co_return interval_without_followers;
        co_return horizon.has_unsettled_ids() ? interval_while_unsettled : interval_while_followed;
    }

    pg::database& database;
    asio::io_context& io;
    history_horizon horizon;  ///< Used by the polling coroutine alone.
    std::atomic<std::int64_t> settled{unknown};
    std::atomic<std::size_t> followers{0};
};

history_feed::history_feed(pg::database& database, asio::io_context& io)
    : impl_(std::make_shared<impl>(database, io)) {}

history_feed::~history_feed() {
    impl_->stop();
}

void history_feed::start() {
    impl_->start(impl_->io.get_executor(), 0ms);
}

std::shared_ptr<void> history_feed::add_follower() {
    if (impl_->followers.fetch_add(1) >= followers_max) {
        impl_->followers.fetch_sub(1);
        return nullptr;
    }
    return {impl_.get(), [state = impl_](void*) { state->followers.fetch_sub(1); }};
}

std::optional<std::int64_t> history_feed::settled() const {
    const std::int64_t id = impl_->settled;
    return id == unknown ? std::nullopt : std::optional(id);
}

}  // namespace fencegate::audit
