#pragma once

#include <spdlog/common.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
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

/// Bounds how many log lines of a kind are written in a second, so that a flood of them fills neither the disk nor the
/// time of the threads that write them.
///
/// Threads: any.
class line_limit {
  public:
    using clock = std::chrono::steady_clock;

    explicit line_limit(std::uint64_t most_in_a_second) : most_(most_in_a_second) {}

    /// Counts a line.
    ///
    /// Out: empty if the line is to be left out; else how many were left out since the last one that was not.
    std::optional<std::uint64_t> admit(clock::time_point now) {
        const std::lock_guard lock(mutex_);
        if (now - begun_ >= std::chrono::seconds(1)) {
            begun_ = now;
            written_ = 0;
        }
        if (written_ == most_) {
            ++left_out_;
            return std::nullopt;
        }
        ++written_;
        return std::exchange(left_out_, 0);
    }

  private:
    const std::uint64_t most_;
    std::mutex mutex_;
    clock::time_point begun_{};
    std::uint64_t written_ = 0, left_out_ = 0;
};

}  // namespace fencegate::runtime
