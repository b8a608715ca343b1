#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/ports.hpp>

#include <string>
#include <string_view>

namespace lockcore {

/// The lease_id of a grant: base64url(claims) "." base64url(MAC over that text). Opaque to callers; the claims are
/// readable but can't be changed. Claims, one a line: "2", nonce, token, granted_at in ms, resources separated by
/// spaces, the hold's id (behind it a `+` where others may share the lease), principal, owner. Plain text, so that the
/// database can read it too.
std::string seal_lease_id(const lease_claims& claims, const authenticator& mac);

/// Errors: errc::lease_not_authentic, for any text that seal_lease_id with the same key did not make. One of the form
/// "1" is named as what it is: older versions counted holds, and their leases run out by themselves.
result<lease_claims> open_lease_id(std::string_view lease_id, const authenticator& mac);

/// Longest text that is looked at: 16 names of 200 bytes and two of 128, encoded.
inline constexpr std::size_t lease_id_max_bytes = 5'120;

}  // namespace lockcore
