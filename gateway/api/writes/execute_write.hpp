#pragma once

#include <gateway/api/writes/write_ports.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

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

}  // namespace fencegate::api
