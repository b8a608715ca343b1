#include <gateway/audit/history_keeper.hpp>

#include <gateway/runtime/background.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>

#include <chrono>

namespace fencegate::audit {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr steady_clock::duration first_delay = 2s;
constexpr steady_clock::duration upkeep_interval = 1h;
constexpr steady_clock::duration delay_after_drop = 1s;
constexpr steady_clock::duration delay_after_lock = 5s;
constexpr steady_clock::duration delay_after_failure = 1min;
constexpr auto upkeep_timeout = 10s;

}  // namespace

struct history_keeper::impl final : runtime::periodic {
    impl(history_config c, pg::database& d, asio::io_context& i) : cfg(c), database(d), io(i) {}

    asio::awaitable<duration> run_once() override {
        auto keep = [days = cfg.keep_days](pg::session& session) { return pg::keep_history(session, days); };
        const auto done =
            co_await database.run(pg::worker_choice::history(), steady_clock::now() + upkeep_timeout, std::move(keep));
        if (!done) {
            const bool locked = done.error().code == errc::write_conflict;
            if (!locked && !is_stopping()) spdlog::warn("the history's partitions: {}", done.error().detail);
            co_return locked ? delay_after_lock : delay_after_failure;
        }
        if (done->made > 0 || done->dropped > 0)
            spdlog::info("the history's partitions: {} made, {} dropped", done->made, done->dropped);
        if (done->remaining == 0) co_return upkeep_interval;
        // A partition that another transaction uses is not dropped.
        co_return done->dropped > 0 ? delay_after_drop : delay_after_lock;
    }

    history_config cfg;
    pg::database& database;
    asio::io_context& io;
};

history_keeper::history_keeper(history_config cfg, pg::database& database, asio::io_context& io)
    : impl_(std::make_shared<impl>(cfg, database, io)) {}

history_keeper::~history_keeper() {
    impl_->stop();
}

void history_keeper::start() {
    impl_->start(impl_->io.get_executor(), first_delay);
}

}  // namespace fencegate::audit
