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

/// A guarded write as its caller asks for it, whatever address it came to.
struct write_call {
    std::string lease_id{};  ///< Empty, and no lease of its own: the headers bring a token of another issuer.
    /// In place of lease_id: a lease that is taken for this write alone, and released whatever comes of it.
    std::optional<lockcore::acquire_request> own_lease{};
    std::vector<operation> operations{};
    bool return_rows = false;
    std::vector<selected_column> select{};  ///< Which columns rows carry. Empty: every one that is exposed.
    bool require_live = false;              ///< Asks a majority of the nodes first whether the lease still lives.
    bool then_release = false;              ///< Seals the lease's token with the write, and releases it behind it.
    std::string idempotency_key{};          ///< Empty: none.
    /// With a key: the body without what says under which lease and until when. Empty: that is the whole body.
    std::optional<std::string> asked{};
    /// Puts a failure of the write into the words of the address that it came to, also one that was kept. Empty: as it
    /// is.
    std::function<void(failure&)> retell{};
};

/// What a write that was done has to say. Where `outcome.replayed`, it was done by an earlier call.
struct write_report {
    write_outcome outcome;
    bool own_lease = false;
    std::optional<release_report> release;  ///< Empty: the lease was not to be released.
};

/// A call whose input was checked, without what only its parsing needed: it may wait for long.
struct write_context {
    write_call call;
    http::request request;                          ///< Without body and headers.
    std::optional<lockcore::lease_claims> brought;  ///< Of the caller's lease or bare token; none for an own lease.
    std::optional<idempotency> key;
    std::shared_ptr<void> running;  ///< Of running_keys.
};

/// Does a guarded write under a lease that the caller brought, or under one of its own: takes the lease, writes, and
/// releases the lease.
///
/// Out:     a lease that the caller brought is released only behind a write that was done and is on disk. A lease of
/// the
///          write's own is released as soon as others see the write, or it failed; the answer waits for the disk. Where
///          it is unknown whether the write landed, it runs out.
///          A re-entrant lease is sealed with its last hold, and takes no other from before the write on.
/// Errors:  the ports'; a failure of a write that PostgreSQL has seen names its write_id.
/// Cancel:  while it waits for a lease of its own: nothing is left behind, nothing was written. Else none.
boost::asio::awaitable<result<write_report>> execute_write(write_ports& ports, write_context context);

}  // namespace fencegate::api
