#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/found_outcome.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::pg {

/// Largest outcome that is kept whole; of a larger one, rows and values are left out.
inline constexpr std::size_t kept_bytes_max = 64 * 1024;

/// Whether a repeat has to meet the same refusal: one that follows from what was asked and what the database held, and
/// not from the lease or from what else was under way. Everything else leaves the key unused.
bool is_kept(const failure& why);

/// An outcome as fencing.kept_outcome has it. `value` may hold a failure only if is_kept().
std::string kept_text(const write_request& request, const result<write_outcome>& value);

/// The same read back, marked as replayed. Errors: errc::internal_error where it can't be read.
result<write_outcome> read_kept(std::string_view text);

/// fencing.claim_keys for writes that have a key, a row each: what became of it, and the outcome kept.
const std::string& claim_keys_sql();
compat::parameters claim_keys_parameters(const std::vector<const write_request*>& requests);

/// What claim_keys or find_outcome found. Empty: the key is new. Else what to answer in place of writing.
std::optional<result<write_outcome>> read_claim(std::string_view state, std::string_view outcome);

/// A principal's key.
struct key_of {
    std::string principal;
    idempotency under;
};
/// Looks without taking the keys; columns as claim_keys has them.
const std::string& find_outcomes_sql();
compat::parameters key_parameters(const std::vector<const key_of*>& keys);

/// Deletes outcomes whose time is over, at most `most`; gives how many. Throws as session::exec does.
std::size_t forget_outcomes(session& via, std::size_t most);

/// A write with a key, and its kept_text().
struct outcome_to_keep {
    const write_request* request = nullptr;
    std::string text;
};
const std::string& keep_outcomes_sql();
/// None of the list is empty.
compat::parameters keep_outcomes_parameters(const std::vector<outcome_to_keep>& outcomes);

/// fencing.seal_writes for writes that are to be sealed.
const std::string& seal_sql();
compat::parameters seal_parameters(const std::vector<const write_request*>& requests);
/// Shows a sealed write's fences as they are behind the seal.
void mark_sealed(write_outcome& outcome);

}  // namespace fencegate::pg
