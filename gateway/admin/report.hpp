#pragma once

#include <gateway/admin/digest_checker.hpp>
#include <gateway/admin/history_checker.hpp>

#include <boost/json/object.hpp>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace fencegate::admin {

/// The most findings that are reported of each promise; more are only counted.
inline constexpr std::int64_t findings_max = 1'000;
/// The most findings of each promise in the text report.
inline constexpr std::int64_t findings_in_text_max = 6;
/// The most spans without protection in the text report.
inline constexpr std::size_t spans_in_text_max = 20;

/// The result of a verification.
struct verification_result {
    history_counts counts;
    std::optional<std::int64_t> from_us;  ///< The verified time; empty: from the first row on.
    std::int64_t to_us = 0;
    std::int64_t violations = 0;  ///< Of promises, by rows of the history.
    std::map<char, std::int64_t> violations_by_promise;
    std::vector<finding> findings;        ///< The first findings_max violations of each promise.
    std::int64_t generation_changes = 0;  ///< Promotions, restores and replacements of PostgreSQL.
    // Tokens of writes without a grant in the history.
    std::int64_t lost_grants = 0;          ///< A generation change has probably lost the grant.
    std::int64_t missing_grants = 0;       ///< All others.
    std::optional<digest_result> digests;  ///< Empty: none were compared.
    protection_spans protection{std::nullopt};
    boost::json::object guard_state;  ///< At the end, as fencing.guard_state() gives it.
    std::chrono::milliseconds took{};
};

/// Returns the report as text of one page.
std::string render_text(const verification_result& found);
/// Returns the report as one line of JSON.
std::string render_json(const verification_result& found);

}  // namespace fencegate::admin
