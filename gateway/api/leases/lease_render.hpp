#pragma once

#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <chrono>
#include <optional>
#include <string>

namespace fencegate::api {

/// What of a lease depends on when its answer is sent.
struct lease_times {
    std::chrono::milliseconds left{};    ///< validity_ms
    std::chrono::milliseconds served{};  ///< served_ms
};

/// A lease as docs/http-api.md shows it.
std::string render_lease(const lockcore::lease& l, const lease_times& times);

/// The answer that gives a lease: rendered when it is sent, and only while the lease is valid. `max_hold`: the longest
/// time that it may be held in all, where the answer is to say it.
http::response lease_response(lockcore::lease l, unsigned status,
                              std::optional<std::chrono::milliseconds> max_hold = std::nullopt);

/// One event of a kept lease, in the form of text/event-stream, with the lease as its data, how long it may be kept and
/// what is left of that. `reason`: why it ended; empty for events that end nothing.
std::string render_lease_event(std::string_view name, const lockcore::kept_lease& kept, const lease_times& times,
                               std::chrono::milliseconds max_hold, std::string_view reason);

/// A live lease as docs/http-api.md lists it, on the first of its resources: nothing with which one could use it. Where
/// it has several, all of them are named too.
std::string render_live_lease(const lockcore::live_lease& l, std::size_t nodes);

/// The live leases as docs/http-api.md lists them: nothing with which one could use them.
std::string render_live_leases(const lockcore::lease_page& page, const lockcore::waiting_overview& waiting,
                               std::size_t nodes);

/// What stays of a lease after a release that left holds; `unsealed`: it was to seal the token.
std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left, bool unsealed);

/// `/v1/leases/{lease_id}`, percent-encoded where needed.
std::string location_of(std::string_view lease_id);

}  // namespace fencegate::api
