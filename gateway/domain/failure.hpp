#pragma once

#include <boost/json/object.hpp>
#include <boost/system/result.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace fencegate {

/// Why a call failed: one value for each slug of the error table in docs/http-api.md.
/// gateway/http/codec/problem maps each to slug and status.
enum class errc {
    invalid_request,
    unauthenticated,
    forbidden,
    resource_not_covered,
    shared_lease,
    lease_not_authentic,
    misdirected_request,
    not_found,
    method_not_allowed,
    not_acceptable,
    too_large,
    header_too_large,
    unsupported_media_type,
    expectation_failed,
    constraint_violation,
    idempotency_in_progress,
    renewals_exhausted,
    write_conflict,
    lease_lost,
    stale_fencing_token,
    fencing_required,
    unprocessable,
    idempotency_mismatch,
    resource_locked,
    too_many_requests,
    too_many_waiters,
    no_quorum,
    storage_unavailable,
    overloaded,
    shutting_down,
    internal_error,
};

/// A fault of one field of a request. `pointer` is a JSON pointer (RFC 6901) into the body, or the name of a parameter
/// or header.
struct field_error {
    std::string pointer;
    std::string detail;
};

/// Maximum number of faults in one answer. Further ones are not named.
inline constexpr std::size_t field_errors_max = 64;

/// Everything a problem document needs.
struct failure {
    errc code = errc::internal_error;
    std::string detail;               ///< One sentence for the caller; never a secret, never another caller's data.
    std::vector<field_error> errors;  ///< Faults of single fields, all at once.
    boost::json::object facts;        ///< Further members of the problem document, as docs/http-api.md names them.
    std::optional<std::chrono::milliseconds> retry_after;  ///< Sets Retry-After (rounded up to seconds).
    bool may_be_repeated = true;   ///< False: no Retry-After, which failures of this kind have otherwise.
    bool outcome_unknown = false;  ///< The call may have taken effect; the problem document says so too.
    bool replayed = false;         ///< The kept outcome of an earlier call with the same idempotency key.
    /// The failure follows from data in PostgreSQL of which no commit has shown yet that they are on disk.
    bool durability_unproven = false;
    bool in_history = false;  ///< The history has an event of this refusal already.
};

/// Returns the failure of a request with one faulty field.
inline failure invalid_field(std::string pointer, std::string detail) {
    failure f;
    f.code = errc::invalid_request;
    f.detail = "The request has a faulty field.";
    f.errors.push_back({std::move(pointer), std::move(detail)});
    return f;
}

inline failure make_failure(errc code, std::string detail) {
    failure f;
    f.code = code;
    f.detail = std::move(detail);
    return f;
}

template <class T>
using result = boost::system::result<T, failure>;

[[noreturn]] inline void throw_exception_from_error(const failure& f, const boost::source_location&) {
    throw std::logic_error("unchecked failure: " + f.detail);
}

}  // namespace fencegate
