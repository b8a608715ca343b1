#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace fencegate {

/// Reports the state of this process to the service manager that started it, by the protocol of sd_notify(3): datagrams
/// of lines to the socket that NOTIFY_SOCKET names. Does nothing without one. The protocol is implemented here because
/// libsystemd would load six more libraries into a gateway.
///
/// Errors:   a datagram that could not be sent is a warning in the log.
/// Lifetime: outlives the contexts of start_watchdog().
class service_notifier {
  public:
    /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    service_notifier();
    ~service_notifier();
    service_notifier(const service_notifier&) = delete;
    service_notifier& operator=(const service_notifier&) = delete;

    /// In: a short text that `systemctl status` shows.
    void report_ready(const std::string& status);
    /// Says that a reload has begun; report_ready() says that it is over.
    void report_reloading();
    void report_stopping();

    /// Reports to the watchdog three times in WATCHDOG_USEC, each time after every context has executed a function that
    /// was posted to it. So the reports end when one of the threads no longer makes turns.
    void start_watchdog(std::vector<boost::asio::io_context*> contexts);

  private:
    boost::asio::awaitable<void> report_turns(std::vector<boost::asio::io_context*> contexts);
    void send(const std::string& lines, int flags = 0) const;

    std::string socket_name_;
    int socket_ = -1;
    /// Zero: no reports to a watchdog.
    std::chrono::microseconds report_interval_{0};
};

}  // namespace fencegate
