#pragma once

#include <gateway/config/config.hpp>

#include <lockcore/events.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace fencegate {

/// Sends the log to standard output: one JSON object per line (time, level, thread, message and the fields
/// of gateway/runtime/log.hpp), or plain text.
void start_logging(const log_config& cfg);

/// Changes the level (log_config::level) of the running log. Threads: any.
void set_log_level(const std::string& level);

/// Logs each change of a node's state in one line, and passes events on to `next`.
///
/// Threads:  any.
/// Limits:   lines_max lines for each node within `window`. The lines left out are counted in one line at its end, with
///           the node's state at that time.
/// Lifetime: outlives the lock_manager; `io` and `next` outlive it.
class node_log final : public lockcore::event_observer {
  public:
    static constexpr unsigned lines_max = 12;
    static constexpr std::chrono::seconds window{60};

    node_log(lockcore::event_observer& next, boost::asio::io_context& io) : next_(next), io_(io) {}

    void on_event(lockcore::event e) override { next_.on_event(std::move(e)); }
    void on_node_change(const lockcore::node_change& change) override;

  private:
    struct node_lines {
        explicit node_lines(boost::asio::io_context& io) : window_end(io) {}
        boost::asio::steady_timer window_end;
        unsigned written = 0, left_out = 0;
        lockcore::node_change latest;
    };
    void end_window(node_lines& lines);

    lockcore::event_observer& next_;
    boost::asio::io_context& io_;
    std::mutex mutex_;
    std::map<std::string, std::unique_ptr<node_lines>> by_name_;
};

}  // namespace fencegate
