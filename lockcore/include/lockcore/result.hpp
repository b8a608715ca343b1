#pragma once

#include <lockcore/cell.hpp>

#include <boost/system/result.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockcore {

/// Why an operation failed. There is a separate code only where a caller acts differently on it.
enum class errc {
    /// Caller error: an argument breaks a documented rule; nothing was sent.
    invalid_argument,
    /// Refused: a majority answered, and another lease holds the resource, for `remaining` at most; or a value that is
    /// no lease occupies its key, and `answers` says on which nodes.
    resource_locked,
    /// Unavailable: too few nodes answered. `answers` has the answer of each node.
    no_quorum,
    /// Refused: a majority no longer holds this lease.
    lease_lost,
    /// Refused: the lease was renewed as often, or held as long, as the configuration allows, or has 64 holds.
    renewals_exhausted,
    /// Caller error: the lease_id was not signed with this cluster's key, or was changed.
    lease_not_authentic,
    /// Caller error: the lease_id is of another cell (config::cell), which `cell` names.
    other_cell,
    /// Refused: as many callers wait as the configuration allows.
    too_many_waiters,
    /// The caller cancelled the call while it waited. What the call acquired is released; a lease that is kept stays.
    cancelled,
    /// Caller error: the idempotency key was used for another request, whose lease is still live.
    idempotency_mismatch,
    /// Refused: another listing or search is in progress; try again.
    busy,
    /// Unavailable: the manager grants no new leases.
    shutting_down,
};

/// The answer of one node, for errc::no_quorum.
struct node_answer {
    std::string name;
    std::string answer;    ///< "granted", "held", "lost", "not admitted", "timeout", "unreachable", …
    std::string detail{};  ///< Why the node does not vote; empty while it votes.
    /// For how long its quarantine can still last; 0: it is in none.
    std::chrono::milliseconds quarantine_left{0};
};

struct failure {
    errc code;
    std::string detail;  ///< One sentence for a person.
    /// resource_locked: the time until the holder's lease expires, at most.
    std::chrono::milliseconds remaining{0};
    /// resource_locked: the place in this manager's queue when the wait ended; 0: the call did not wait.
    std::size_t queue_position = 0;
    /// no_quorum; resource_locked where a value that is no lease occupies the key.
    std::vector<node_answer> answers;
    cell_id cell = 0;  ///< other_cell: the cell that the caller named.
};

/// Returns the name of a code, as logs show it.
const char* to_string(errc code);

template <class T>
using result = boost::system::result<T, failure>;

/// Boost.System calls this for .value() of a failed result (argument-dependent lookup). The caller must test first.
[[noreturn]] inline void throw_exception_from_error(const failure& f, const boost::source_location&) {
    throw std::logic_error(std::string("unchecked failure: ") + to_string(f.code) + ": " + f.detail);
}

}  // namespace lockcore
