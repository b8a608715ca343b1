#include <gateway/cli/boot_timer.hpp>

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <utility>

namespace fencegate::cli {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

int open_timer() {
    const int file = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (file < 0) throw std::system_error(errno, std::system_category(), "timerfd_create");
    return file;
}

}  // namespace

boot_timer::boot_timer(boost::asio::io_context& io) : timer_(io, open_timer()) {}

void boot_timer::arm(boot_clock::time_point due, std::function<void()> action) {
    const bool waiting = static_cast<bool>(action_);
    action_ = std::move(action);
    // A time of zero would disarm the timer.
    const nanoseconds since_boot = std::max(due.time_since_epoch(), nanoseconds{1});
    const auto whole_seconds = std::chrono::floor<seconds>(since_boot);
    itimerspec setting{};
    setting.it_value.tv_sec = whole_seconds.count();
    setting.it_value.tv_nsec = (since_boot - whole_seconds).count();
    if (timerfd_settime(timer_.native_handle(), TFD_TIMER_ABSTIME, &setting, nullptr) != 0)
        throw std::system_error(errno, std::system_category(), "timerfd_settime");
    if (!waiting) await_expiry();
}

void boot_timer::cancel() {
    action_ = nullptr;
    timer_.cancel();
}

void boot_timer::await_expiry() {
    timer_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& ec) {
        if (ec || !action_) return;
        std::uint64_t expirations = 0;
        // The read fails when arm() has set a later time meanwhile.
        if (read(timer_.native_handle(), &expirations, sizeof expirations) < 0) return await_expiry();
        std::exchange(action_, nullptr)();
    });
}

}  // namespace fencegate::cli
