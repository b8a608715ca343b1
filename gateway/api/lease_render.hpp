#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <string>

namespace fencegate::api {

/// A lease as API.md shows it.
std::string render_lease(const lockcore::lease& l);

/// What stays of a lease after a release that left holds.
std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left);

/// `/v1/leases/{lease_id}`, percent-encoded where needed.
std::string location_of(std::string_view lease_id);

}  // namespace fencegate::api
