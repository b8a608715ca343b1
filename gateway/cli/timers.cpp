#include <gateway/cli/timers.hpp>

#include <gateway/cli/arguments.hpp>
#include <gateway/cli/lease_calls.hpp>
#include <gateway/domain/exit_code.hpp>

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

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

int open_timer() {
    const int file = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (file < 0) throw std::system_error(errno, std::system_category(), "timerfd_create");
    return file;
}

/// The longest time from the warning to the end of the longest hold.
constexpr milliseconds warning_time_max{60'000};

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

hold_limit::hold_limit(boost::asio::io_context& io, const lock_options& options,
                       std::function<void(const std::string&)> end_hold)
    : options_(options), end_hold_(std::move(end_hold)), timer_(io) {}

std::optional<lock_refusal> hold_limit::check(milliseconds of_gateway) const {
    if (!options_.max_hold || of_gateway == milliseconds{0} || *options_.max_hold <= of_gateway) return std::nullopt;
    return lock_refusal{exit_usage, "--max-hold must be at most " + format_duration(of_gateway) +
                                        ", the longest that the gateway allows"};
}

void hold_limit::begin(boot_clock::time_point granted_at, milliseconds of_gateway) {
    longest_ = std::min(options_.max_hold.value_or(milliseconds::max()),
                        of_gateway > milliseconds{0} ? of_gateway : milliseconds::max());
    if (longest_ != milliseconds::max()) end_ = std::min(end_, granted_at + longest_);
    counting_ = true;
    if (end_ != boot_clock::time_point::max()) arm();
}

void hold_limit::shorten(boot_clock::time_point end, const std::string& refusal) {
    end_ = std::min(end_, end);
    if (!refusal.empty()) {
        refusal_ = refusal;
        announced_ = true;
    }
    if (counting_) arm();
}

milliseconds hold_limit::limit(milliseconds ttl) const {
    constexpr milliseconds shortest{100};  // that gateways accept
    const auto left = std::chrono::ceil<milliseconds>(end_ - boot_clock::now());
    return std::clamp(left, shortest, std::max(ttl, shortest));
}

void hold_limit::arm() {
    const auto end_time = end_ - std::min(options_.kill_after, longest_ / 10);
    const std::string reason = "the longest hold, " + format_duration(longest_) + ", is over";
    if (announced_) return timer_.arm(end_time, [this, reason] { end_hold_(refusal_.empty() ? reason : refusal_); });
    timer_.arm(end_time - std::min(warning_time_max, longest_ / 10), [this, end_time, reason] {
        announced_ = true;
        const auto left = std::chrono::ceil<milliseconds>(end_time - boot_clock::now());
        print_message(options_, reason + " soon: it ends in " + format_duration(std::max(left, milliseconds{0})));
        arm();
    });
}

}  // namespace fencegate::cli
