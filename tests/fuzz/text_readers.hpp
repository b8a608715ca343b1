#pragma once

#include <string_view>

namespace fencegate::fuzz {

// Each gives its input to one reader of a short text and checks what the reader promises.

/// The headers Accept, Content-Type and Prefer.
void check_accept(std::string_view input);

/// Host headers, origins and the entries of http.allowed_hosts.
void check_authority(std::string_view input);

/// JSON pointers of faults: the lines of the input are the keys.
void check_json_pointer(std::string_view input);

/// The outcomes of writes that PostgreSQL keeps under idempotency keys, and the answers made of them.
void check_kept_outcome(std::string_view input);

/// lease_ids: the input as a lease_id, and the input as claims that somebody with the key has signed.
void check_lease_id(std::string_view input);

/// What a hostile node may answer to the commands of leases: the items of a script's reply,
/// and leases as a node stores them.
/// The first byte selects the command.
void check_lease_record(std::string_view input);

/// Query strings.
void check_query(std::string_view input);

/// The bytes that a hostile Redis node sends: RESP replies, and what the commands of the protocol read from them.
void check_redis_reply(std::string_view input);

/// Names of resources, nonces and ids of holds.
void check_resource_name(std::string_view input);

/// Times of the query parameters.
void check_rfc3339(std::string_view input);

/// Errors of PostgreSQL as libpq writes them. A hostile SQL user chooses the message,
/// DETAIL and the names of constraints.
void check_server_error(std::string_view input);

/// JSON Web Key Sets.
void check_token_keys(std::string_view input);

}  // namespace fencegate::fuzz
