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
    const int opened = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (opened < 0) throw std::system_error(errno, std::system_category(), "timerfd_create");
    return opened;
}

}  // namespace

boot_timer::boot_timer(boost::asio::io_context& io) : timer_(io, open_timer()) {}

void boot_timer::arm(boot_clock::time_point at, std::function<void()> action) {
    const bool waiting = static_cast<bool>(action_);
    action_ = std::move(action);
    // A time of zero would disarm it.
    const nanoseconds since_boot = std::max(at.time_since_epoch(), nanoseconds{1});
    const auto whole = std::chrono::floor<seconds>(since_boot);
    itimerspec due{};
    due.it_value.tv_sec = whole.count();
    due.it_value.tv_nsec = (since_boot - whole).count();
    if (timerfd_settime(timer_.native_handle(), TFD_TIMER_ABSTIME, &due, nullptr) != 0)
        throw std::system_error(errno, std::system_category(), "timerfd_settime");
    if (!waiting) wait();
}

void boot_timer::cancel() {
    action_ = nullptr;
    timer_.cancel();
}

void boot_timer::wait() {
    timer_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& ec) {
        if (ec || !action_) return;
        std::uint64_t expirations = 0;
        if (read(timer_.native_handle(), &expirations, sizeof expirations) < 0) return wait();  // armed anew meanwhile
        std::exchange(action_, nullptr)();
    });
}

}  // namespace fencegate::cli
