#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::api {

/// A guarded write as its caller asks for it, whatever address it came to.
struct write_call {
    std::string lease_id{};  ///< Empty, and no lease of its own: the headers bring a token of another issuer.
    /// In place of lease_id: a lease that is taken for this write alone, and given back whatever comes of it.
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

/// What became of the lease behind a write.
struct release_report {
    bool released = false;         ///< It is over. False: holds are left, or too few nodes answered and it runs out.
    std::uint32_t holds_left = 0;  ///< Of a re-entrant lease; 0 also where that is not known.
};

/// What a write that was done has to say. Where `outcome.replayed`, it was done by an earlier call.
struct write_report {
    write_outcome outcome;
    bool own_lease = false;
    std::optional<release_report> release;  ///< Empty: the lease was not to be released.
};

/// The answer to a write that was done. Must not wait for anything.
using write_renderer = std::function<http::response(const write_report&)>;

/// Does a guarded write from the lease to the answer: opens or takes the lease, writes, lets go of the lease, and has
/// `render` tell of it; problem documents for the rest, with the write_id of a write that PostgreSQL has seen.
///
/// In:     `r` the request that it came with: who asks, until when (beside what it may wait for a lease), and what the
///         idempotency key stands for.
/// Out:    a lease that the caller brought is released only behind a write that was done. A lease of the write's own
///         is let go as soon as others see the write, or it failed; the answer waits for the disk. Where it is unknown
///         whether the write landed, it runs out.
///         A re-entrant lease is sealed with its last hold, and takes no other from before the write on.
/// Cancel: while it waits for a lease of its own: nothing is left behind, nothing was written. Else none; a write that
///         was begun runs to its end, and the lease is released.
boost::asio::awaitable<http::response> carry_out_write(services with, write_call call, http::request r,
                                                       write_renderer render);

}  // namespace fencegate::api
