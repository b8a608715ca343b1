#pragma once

#include <gateway/api/leases/lease_seal.hpp>
#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>
#include <gateway/pg/write/group_commit.hpp>

#include <lockcore/lease.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

/// The result of the release after a write.
struct release_report {
    bool released = false;         ///< False: holds are left, or too few nodes answered and the lease expires.
    std::uint32_t holds_left = 0;  ///< For a re-entrant lease; 0 also if unknown.
};

/// The interface of the write service to leases and PostgreSQL. The service uses nothing else, so that a test can make
/// each step fail.
class write_ports {
  public:
    using time_point = std::chrono::steady_clock::time_point;

    virtual ~write_ports() = default;

    /// See pg::write_executor.
    virtual boost::asio::awaitable<result<found_outcome>> find_outcome(std::string principal, idempotency_key key,
                                                                       time_point until) = 0;
    virtual boost::asio::awaitable<result<pg::committed_write>> write(write_request request, time_point until) = 0;

    /// What the seal of a lease's token uses.
    virtual seal_ports& seals() = 0;

    /// See lockcore::lock_manager. The limits of the caller are checked first (admit_acquisition).
    virtual boost::asio::awaitable<result<lockcore::lease>> acquire(lockcore::acquire_request request) = 0;
    virtual boost::asio::awaitable<result<void>> require_live(lockcore::lease_claims claims) = 0;
    virtual boost::asio::awaitable<release_report> release(lockcore::lease_claims claims, std::string trace_id) = 0;
    /// See lease_access.hpp.
    virtual boost::asio::awaitable<void> release_abandoned_lease(lockcore::lease_claims claims,
                                                                 std::string trace_id) = 0;
};

/// A guarded write as its caller requests it, on any of the routes for writes.
struct write_call {
    std::string lease_id{};  ///< Empty without own_lease: the headers have a token of another issuer.
    /// In place of lease_id: a lease that is acquired for this write alone, and released when it has ended.
    std::optional<lockcore::acquire_request> own_lease{};
    std::vector<operation> operations{};
    bool return_rows = false;
    std::vector<selected_column> select{};  ///< Columns of the returned rows. Empty: every exposed column.
    row_format format = row_format::json;   ///< Of the returned rows.
    std::string accepted_form{};    ///< What Accept asks for beside JSON; the fingerprint covers it. Empty: nothing.
    bool require_live = false;      ///< Whether to check first that a majority of the nodes holds the lease.
    bool then_release = false;      ///< Whether to seal the token with the write and then release the lease.
    std::string idempotency_key{};  ///< Empty: none.
    /// With a key: what the fingerprint covers of the body (fingerprint_text_of).
    std::string fingerprint_text{};
    /// Translates a failure of the write, also a kept one, into the fields of the route's request. Empty: none.
    std::function<void(failure&)> translate_failure{};
};

/// The result of an applied write. If `outcome.replayed`, an earlier call applied it.
struct write_report {
    write_outcome outcome;
    bool own_lease = false;
    std::optional<release_report> release;  ///< Empty: no release was requested.
};

/// A write whose input was checked. It may wait for long, so it keeps no more of the request than it needs.
struct write_context {
    write_call call;
    http::request request;                                ///< Without body and headers.
    std::optional<lockcore::lease_claims> caller_claims;  ///< Of the caller's lease or token; empty for an own lease.
    std::optional<idempotency_key> key;
    std::shared_ptr<void> running;  ///< Entry in running_keys; released when destroyed.
};

/// Executes a guarded write under a lease of the caller, or under a lease of its own, which it acquires and releases.
///
/// Out:    a lease of the caller is released only after the write was applied and is on disk. An own lease is released
///         as soon as the write is visible to others or has failed; the answer waits for the disk. If it is unknown
///         whether the write was committed, an own lease is left to expire. A re-entrant lease is sealed with its last
///         hold, and accepts no further hold from before the write on.
/// Errors: those of the ports, with the write_id if the write was made.
/// Cancel: while it waits for an own lease; then it leaves nothing behind and has written nothing. Otherwise none.
boost::asio::awaitable<result<write_report>> execute_write(write_ports& ports, write_context context);

/// Renders the answer to an applied write. Must not wait.
using write_renderer = std::function<http::response(const write_report&)>;

/// Executes a guarded write and returns the HTTP answer: opens or acquires the lease, writes, releases the lease, and
/// calls `render`.
///
/// In:     `r` is the request of the write: its principal, its deadline (without the wait for a lease), and the parts
///         that the fingerprint of an idempotency key covers.
/// Out:    see execute_write.
/// Cancel: see execute_write.
http::awaitable_response answer_write(const gateway_services& services, write_call call, http::request r,
                                      write_renderer render);

}  // namespace fencegate::api
