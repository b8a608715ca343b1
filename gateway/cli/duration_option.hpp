#pragma once

#include <gateway/cli/arguments.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <string>

namespace fencegate::cli {

/// Adds an option that is a duration, of at least `shortest`, and stores it in `target`.
template <typename Duration>
CLI::Option* add_duration(CLI::App& command, const std::string& name, Duration& target, const std::string& help,
                          std::chrono::milliseconds shortest = std::chrono::milliseconds{0}) {
    const auto parse = [&target, name, shortest](const std::string& value) {
        const auto length = parse_duration(value);
        if (!length)
            throw CLI::ValidationError(name,
                                       value + " is not a duration of at most 1000h, such as 500ms, 10s, 2m, 1h or 2d");
        if (*length < shortest)
            throw CLI::ValidationError(name, "has to be at least " + std::to_string(shortest.count()) + "ms");
        target = *length;
    };
    return command.add_option_function<std::string>(name, parse, help)->type_name("TIME");
}

}  // namespace fencegate::cli
