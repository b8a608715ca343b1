#pragma once

#include <gateway/config/config.hpp>

#include <optional>
#include <string>

namespace fencegate::admin {

struct verify_options {
    std::optional<std::string> from, to;  ///< Times as PostgreSQL reads them; `to` empty: the start of the run.
    std::optional<std::string> resource_prefix;
    std::int64_t skew_ms = 1'000;       ///< The largest difference between the clocks of two gateways.
    bool allow_missing_grants = false;  ///< Only count writes without a grant in the history.
    bool json = false;
};

/// Exit codes of `fencegate verify`.
enum verify_exit_code : int { proved = 0, broken = 1, could_not_run = 2 };

/// Replays the history of a live system and prints a report of one page, or one JSON object: proved, or the rows that
/// violate a promise (history_checker.hpp). Reads in short statements and takes no locks; shows its progress on
/// standard error if that is a terminal. Blocks until the end.
///
/// Out: a verify_exit_code, or exit_usage if `from` or `to` is no time or they select no time.
int verify(const postgres_config& database, const verify_options& options);

}  // namespace fencegate::admin
