#pragma once

#include <gateway/admin/history_checker.hpp>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace fencegate::admin {

/// Findings that are told of each promise; more are counted.
inline constexpr std::int64_t findings_max = 1'000;
/// Those of them that are on the page.
inline constexpr std::int64_t findings_on_page_max = 6;

/// What a run found.
struct outcome {
    tally counts;
    std::optional<std::int64_t> from_us;
    std::int64_t to_us = 0;
    std::int64_t broken = 0;  ///< Rows that break a promise.
    std::map<char, std::int64_t> broken_by_promise;
    std::vector<finding> findings;    ///< The first findings_max of each promise.
    std::int64_t missing_grants = 0;  ///< Tokens that wrote, and whose grant is nowhere.
    std::chrono::milliseconds took{};
};

std::string render_page(const outcome& found);
std::string render_json(const outcome& found);

}  // namespace fencegate::admin
