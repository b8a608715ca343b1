#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/secrets.hpp>
#include <lockcore/types.hpp>

#include <string>
#include <string_view>

namespace lockcore {

/// Returns the lease_id of the claims in a cell: mark_cell(base64url(claims)) "." base64url(MAC over that text).
/// Anybody can read cell and claims, but nobody can change them.
///
/// The claims are plain text, so that the database can read them too, with one line each for: "1" (the format), nonce,
/// token, granted_at in ms, resources (append_names), the id of the hold (followed by `+` if
/// the lease may have further holds), principal, owner.
std::string sign_lease_id(const lease_claims& claims, cell_id cell, const authenticator& mac);

/// Verifies that a lease_id is of this cell, and its MAC, and returns its claims.
///
/// Errors: errc::other_cell if it names another cell, whatever key signed it. errc::lease_not_authentic for any text
///         that sign_lease_id did not make with a key that counts.
result<lease_claims> verify_lease_id(std::string_view lease_id, cell_id cell, const authenticator& mac);

/// The longest lease_id: a cell, names_bytes_max of names, a principal and an owner of 128 bytes, encoded.
inline constexpr std::size_t lease_id_max_bytes = 6'144;

}  // namespace lockcore
