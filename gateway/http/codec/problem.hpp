#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencegate::http {

/// How callers see an error code. One row for each value of `errc`, in its order.
struct problem_kind {
    errc code{};
    std::string_view slug;
    unsigned status = 500;
    std::string_view title;
    std::string_view explanation;  ///< What it means and what to do, for the page `/problems/{slug}`.
    std::optional<std::chrono::milliseconds> retry_after;  ///< Retry-After if the failure itself has none.
};

const problem_kind& kind_of(errc code);
std::span<const problem_kind> problem_kinds();

/// Returns the problem document (RFC 9457) of a failure, with Retry-After if it has one, and Idempotency-Replayed if it
/// is a kept outcome.
response problem_response(const failure& f, std::string_view request_id);

/// Returns the page `/problems/{slug}`: HTML if `accept` prefers it to plain text. Errors: errc::not_found.
result<response> explain_problem(std::string_view slug, std::string_view accept);

}  // namespace fencegate::http
