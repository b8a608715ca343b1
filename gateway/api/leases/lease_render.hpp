#pragma once

#include <gateway/http/message.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <chrono>
#include <optional>
#include <string>

namespace fencegate::api {

/// The fields of a lease that depend on when its answer is sent.
struct lease_times {
    std::chrono::milliseconds left{};    ///< validity_ms
    std::chrono::milliseconds served{};  ///< served_ms
};

/// Returns the JSON of a lease as docs/http-api.md describes it.
std::string render_lease(const lockcore::lease& l, const lease_times& times);

/// Returns the answer that grants a lease. It is rendered when it is sent, and sent only while the lease is valid.
///
/// In: `max_hold`: the longest time that the lease may be held in all, if the answer has to contain it.
http::response lease_response(lockcore::lease l, unsigned status,
                              std::optional<std::chrono::milliseconds> max_hold = std::nullopt);

/// Returns one event of a kept lease (text/event-stream). Its data is the lease, with max_hold_ms and hold_left_ms.
///
/// In: `reason`: why the lease ended; empty for events that do not end it.
std::string render_lease_event(std::string_view name, const lockcore::kept_lease& kept, const lease_times& times,
                               std::chrono::milliseconds max_hold, std::string_view reason);

/// Returns one event of a watched lease. In: `reason` as of render_lease_event.
std::string render_watch_event(std::string_view name, const lockcore::lease& watched, const lease_times& times,
                               std::string_view reason);

/// Returns the JSON of a live lease as docs/http-api.md lists it, under its first resource and without the lease_id. If
/// the lease has several resources, it names all.
std::string render_live_lease(const lockcore::live_lease& l, std::size_t nodes);

/// Returns the JSON of GET /v1/leases; no lease_id is in it.
std::string render_live_leases(const lockcore::lease_page& page, const lockcore::waiting_overview& waiting,
                               std::size_t nodes);

/// What became of the seal of a token at the release of a hold.
enum class seal_result { not_requested, sealed, not_sealed };

/// Returns the JSON of a lease after the release of a hold that left others (`holds_left`); or none, if the token is
/// not sealed. With not_sealed, which is also the result if that is not known, it says `"sealed":false`.
std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left, seal_result seal);

/// Returns `/v1/leases/{lease_id}`, percent-encoded where needed.
std::string location_of(std::string_view lease_id);

}  // namespace fencegate::api
