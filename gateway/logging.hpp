#pragma once

#include <gateway/config/config.hpp>

namespace fencegate {

/// Sends the log to standard output: one JSON object per line (time, level, thread, message and the fields
/// of gateway/runtime/log.hpp), or plain text.
void start_logging(const log_config& cfg);

/// Changes the level (log_config::level) of the running log. Threads: any.
void set_log_level(const std::string& level);

}  // namespace fencegate
