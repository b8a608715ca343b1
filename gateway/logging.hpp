#pragma once

#include <gateway/config/config.hpp>

namespace fencegate {

/// Sends the log to standard output: one JSON object per line (time, level, thread, message), or plain text.
void start_logging(const log_config& cfg);

}  // namespace fencegate
