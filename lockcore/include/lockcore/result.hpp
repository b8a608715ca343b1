#pragma once

#include <boost/system/result.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockcore {

/// Why an operation did not do what it was asked. A code exists only if a caller acts on it differently.
enum class errc {
    invalid_argument,  ///< caller_error: an argument breaks a documented rule; nothing was sent.
    resource_locked,   ///< refused: a majority answered, and another lease holds the resource, for `remaining` at most;
                       ///< or a value that is no lease occupies its key, and `answers` says where.
    no_quorum,         ///< unavailable: too few nodes answered. `answers` says what each of them did.
    lease_lost,        ///< refused: a majority no longer holds this lease.
    renewals_exhausted,    ///< refused: the lease was renewed as often or held as long as the configuration allows.
    lease_not_authentic,   ///< caller_error: the lease_id was not made by this cluster's key, or was changed.
    too_many_waiters,      ///< refused: as many callers wait for this resource, or in all, as the configuration allows.
    cancelled,             ///< refused: the caller went away while it waited. Nothing is left behind.
    idempotency_mismatch,  ///< caller_error: the idempotency key was used for another request, whose lease still lives.
    busy,                  ///< refused: a listing is under way already; try again.
    shutting_down,         ///< unavailable: the manager takes no new leases.
};

/// What one node answered, for errc::no_quorum.
struct node_answer {
    std::string name;
    std::string answer;  ///< "granted", "held", "lost", "not admitted", "timeout", "unreachable", "quarantined", …
};

struct failure {
    errc code;
    std::string detail;                      ///< One sentence for a person.
    std::chrono::milliseconds remaining{0};  ///< resource_locked: until the holder's lease runs out, at most.
    std::size_t queue_position =
        0;  ///< resource_locked: place in this manager's queue when the wait ended; 0 = did not wait.
    std::vector<node_answer> answers;  ///< no_quorum; resource_locked where no lease but another value is in the way.
};

/// The short name of a code, as in logs.
const char* to_string(errc code);

template <class T>
using result = boost::system::result<T, failure>;

/// Found by argument-dependent lookup when .value() is called on a failed result; a caller should have asked first.
[[noreturn]] inline void throw_exception_from_error(const failure& f, const boost::source_location&) {
    throw std::logic_error(std::string("unchecked failure: ") + to_string(f.code) + ": " + f.detail);
}

}  // namespace lockcore
