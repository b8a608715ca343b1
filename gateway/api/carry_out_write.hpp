#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>

#include <functional>
#include <string>
#include <vector>

namespace fencegate::api {

/// A guarded write as its caller asks for it, whatever address it came to.
struct write_call {
    std::string lease_id;  ///< Empty: the headers bring a token of another issuer.
    std::vector<operation> operations;
    bool return_rows = false;
    bool require_live = false;              ///< Asks a majority of the nodes first whether the lease still lives.
    std::vector<selected_column> select{};  ///< Which columns rows carry. Empty: every one that is exposed.
    /// Puts a failure of the write into the words of the address that it came to. Empty: as it is.
    std::function<void(failure&)> retell{};
};

/// What a write that was done has to say.
struct write_report {
    std::string write_id;
    lockcore::fencing_token token{};
    write_outcome outcome;
};

/// The answer to a write that was done. Must not wait for anything.
using write_renderer = std::function<http::response(const write_report&)>;

/// Does a guarded write from the lease to the answer: opens the lease, writes, and has `render` tell of it; problem
/// documents for the rest, with the write_id of a write that PostgreSQL has seen.
///
/// In:     `r` the request that it came with: who asks, and until when.
/// Cancel: none; a write that was begun runs to its end.
boost::asio::awaitable<http::response> carry_out_write(services with, write_call call, http::request r,
                                                       write_renderer render);

}  // namespace fencegate::api
