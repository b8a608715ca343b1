#include <gateway/service_notifier.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace fencegate {
namespace {

std::string_view environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

std::int64_t parse_number(std::string_view text) {
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

}  // namespace

service_notifier::service_notifier() : socket_name_(environment("NOTIFY_SOCKET")) {
    if (socket_name_.empty()) return;
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const std::string_view watched = environment("WATCHDOG_PID");
    if (watched.empty() || parse_number(watched) == ::getpid())
        report_interval_ = std::chrono::microseconds(parse_number(environment("WATCHDOG_USEC")) / 3);
}

service_notifier::~service_notifier() {
    if (socket_ >= 0) ::close(socket_);
}

void service_notifier::report_ready(const std::string& status) {
    send("READY=1\nSTATUS=" + status);
}

void service_notifier::report_reloading() {
    send("RELOADING=1\nSTATUS=reloads its configuration");
}

void service_notifier::report_stopping() {
    send("STOPPING=1\nSTATUS=finishes requests and writes events to the history");
}

void service_notifier::start_watchdog(std::vector<boost::asio::io_context*> contexts) {
    if (report_interval_.count() <= 0) return;
    auto& first = *contexts.front();
    boost::asio::co_spawn(first, report_turns(std::move(contexts)), boost::asio::detached);
}

boost::asio::awaitable<void> service_notifier::report_turns(std::vector<boost::asio::io_context*> contexts) {
    boost::asio::steady_timer timer(*contexts.front());
    for (;;) {
        for (auto* context : contexts)
            co_await boost::asio::post(context->get_executor(), boost::asio::use_awaitable);
        send("WATCHDOG=1", MSG_DONTWAIT);  // A manager that does not read must not block this thread.
        timer.expires_after(report_interval_);
        co_await timer.async_wait(boost::asio::use_awaitable);
    }
}

void service_notifier::send(const std::string& lines, int flags) const {
    if (socket_name_.empty()) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t size = std::min(socket_name_.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, socket_name_.data(), size);
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // An abstract socket has no file.
    const auto address_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
    if (::sendto(socket_, lines.data(), lines.size(), MSG_NOSIGNAL | flags, reinterpret_cast<const sockaddr*>(&address),
                 address_size) < 0)
        spdlog::warn("the service manager's socket {}: {}", socket_name_, std::strerror(errno));
}

}  // namespace fencegate
