#pragma once

#include <spdlog/common.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <variant>

namespace fencegate::runtime {

/// A member of a log line beside its message. A field with an empty text is left out.
struct log_field {
    log_field(std::string_view name_, std::string_view value_) : name(name_), value(value_) {}
    log_field(std::string_view name_, std::integral auto value_)
        : name(name_), value(static_cast<std::int64_t>(value_)) {}

    std::string_view name;
    std::variant<std::string_view, std::int64_t> value;
};

/// Writes a line with fields: in the JSON format they are members of the object, in the text format ` name=value`
/// follows the message. Secrets, lease ids and paths that may contain them are no fields.
///
/// Threads: any.
void log(spdlog::level::level_enum level, std::string_view message, std::initializer_list<log_field> fields);

/// Returns the fields of the line that this thread is writing, for the log's formatters.
std::span<const log_field> current_log_fields();

}  // namespace fencegate::runtime
