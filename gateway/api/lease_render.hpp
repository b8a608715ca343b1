#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <string>

namespace fencegate::api {

/// A lease as API.md shows it.
std::string render_lease(const lockcore::lease& l);

/// A lease after POST …/renew: with the longest time that it may be held in all.
std::string render_renewed_lease(const lockcore::lease& l, lockcore::milliseconds max_hold);

/// One event of a kept lease, in the form of text/event-stream, with the lease as its data, how long it may be kept and
/// what is left of that. `reason`: why it ended; empty for events that end nothing.
std::string render_lease_event(std::string_view name, const lockcore::kept_lease& kept, lockcore::milliseconds max_hold,
                               std::string_view reason);

/// A live lease as API.md lists it, on the first of its resources: nothing with which one could use it. Where it has
/// several, all of them are named too.
std::string render_live_lease(const lockcore::live_lease& l, std::size_t nodes);

/// The live leases as API.md lists them: nothing with which one could use them.
std::string render_live_leases(const lockcore::lease_page& page, const lockcore::waiting_overview& waiting,
                               std::size_t nodes);

/// What stays of a lease after a release that left holds.
std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left);

/// `/v1/leases/{lease_id}`, percent-encoded where needed.
std::string location_of(std::string_view lease_id);

}  // namespace fencegate::api
