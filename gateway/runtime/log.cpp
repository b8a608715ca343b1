#include <gateway/runtime/log.hpp>

#include <spdlog/spdlog.h>

namespace fencegate::runtime {
namespace {

/// spdlog's messages have no fields. Its loggers format a line on the thread that logs it.
thread_local std::span<const log_field> current;

}  // namespace

void log(spdlog::level::level_enum level, std::string_view message, std::initializer_list<log_field> fields) {
    spdlog::logger& out = *spdlog::default_logger_raw();
    if (!out.should_log(level)) return;
    current = fields;
    out.log(level, spdlog::string_view_t(message.data(), message.size()));
    current = {};
}

std::span<const log_field> current_log_fields() {
    return current;
}

}  // namespace fencegate::runtime
