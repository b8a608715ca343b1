#pragma once

#include <gateway/config/config.hpp>

#include <optional>
#include <string>

namespace fencegate::admin {

struct verify_options {
    std::optional<std::string> from, to;  ///< Times as PostgreSQL reads them; `to` empty: the beginning of the run.
    std::optional<std::string> resource_prefix;
    std::int64_t skew_ms = 1'000;       ///< How far the clocks of gateways may be apart.
    bool allow_missing_grants = false;  ///< A write whose grant is nowhere in the history is counted, not a break.
    bool json = false;
};

/// Exit codes of `fencegate verify`.
enum verify_exit_code : int { proved = 0, broken = 1, could_not_run = 2 };

/// Replays the history of a live system and prints a report of one page, or one JSON object: proved, or which rows
/// break which promise (history_checker.hpp). Reads in short statements, locks nothing; shows its progress on standard
/// error if that is a terminal. Blocking.
int verify(const postgres_config& database, const verify_options& wanted);

}  // namespace fencegate::admin
