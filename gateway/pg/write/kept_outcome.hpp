#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// Largest outcome that is kept whole; a larger one is kept without its rows and values.
inline constexpr std::size_t kept_bytes_max = 64 * 1024;

/// Whether a repetition of the call has to get the same refusal: one that follows from the request and the data, not
/// from the lease or from concurrent transactions. After any other failure the key is unused.
bool is_kept(const failure& why);

/// Returns the text of an outcome for fencing.kept_outcome. `value` may be a failure only if is_kept().
std::string write_kept(const write_request& request, const result<write_outcome>& value);

/// Reads that text; the outcome is marked as replayed.
///
/// Errors: errc::internal_error where it can't be read.
result<write_outcome> read_kept(std::string_view text);

/// The columns of claim_keys_sql and find_outcomes_sql.
struct key_column {
    static constexpr int state = 0;
    static constexpr int outcome = 1;
};

/// The statement that calls fencing.claim_keys for writes that have a key. One row each.
inline const std::string claim_keys_sql =
    "select state, outcome from fencing.claim_keys($1::text[], $2::text[], $3::bytea[])";
compat::parameters claim_keys_parameters(const std::vector<const write_request*>& requests);

/// Reads a row of claim_keys or find_outcomes. Empty: the key is new; else the outcome of the call, which then must not
/// write.
std::optional<result<write_outcome>> read_key_state(std::string_view state, std::string_view outcome);

/// An idempotency key together with the principal that it belongs to.
struct outcome_key {
    std::string principal;
    idempotency_key caller_key;
};
/// The statement that looks up kept outcomes without claiming the keys.
inline const std::string find_outcomes_sql =
    "select state, outcome from fencing.find_outcomes($1::text[], $2::text[], $3::bytea[])";
compat::parameters key_parameters(const std::vector<const outcome_key*>& keys);

/// A write with an idempotency key, and its text (write_kept).
struct outcome_to_keep {
    const write_request* request = nullptr;
    std::string text;
};
inline const std::string keep_outcomes_sql =
    "select fencing.keep_outcomes($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint)";
/// `outcomes` is not empty.
compat::parameters keep_outcomes_parameters(const std::vector<outcome_to_keep>& outcomes);

}  // namespace fencegate::pg
