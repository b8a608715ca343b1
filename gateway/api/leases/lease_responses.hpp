#pragma once

#include <gateway/api/services.hpp>
#include <gateway/http/message.hpp>
#include <gateway/metrics/watches.hpp>

#include <lockcore/lease.hpp>
#include <lockcore/lock_manager.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Returns the JSON of a live lease as docs/http-api.md lists it, under one of its resources and without the lease_id.
/// If the lease has several, it names all.
std::string render_live_lease(const lockcore::live_lease& l, const lockcore::resource_name& resource,
                              std::size_t nodes);

/// Appends the JSON of live leases, each under the given resource; null: under its first one.
void append_live_leases(std::string& text, const std::vector<lockcore::live_lease>& leases,
                        const lockcore::resource_name* resource, std::size_t nodes);

/// Returns the JSON of GET /v1/leases; no lease_id is in it.
std::string render_live_leases(const lockcore::lease_page& page, const metrics::waiting_watch::finding& waiting,
                               std::size_t nodes);

/// What became of the seal of a token at the release of a hold.
enum class seal_result { not_requested, sealed, not_sealed };

/// Returns the JSON of a lease after the release of a hold that left others (`holds_left`); or none, if the token is
/// not sealed. With not_sealed, which is also the result if that is not known, it says `"sealed":false`.
std::string render_remaining_holds(const lockcore::lease_claims& claims, std::string_view lease_id,
                                   std::uint32_t holds_left, seal_result seal);

/// Returns `/v1/leases/{lease_id}`, percent-encoded where needed.
std::string location_of(std::string_view lease_id);

/// Returns the answer for a kept lease, which the gateway renews while its caller's connection is open and the caller's
/// system has acknowledged the event before: a stream of events (text/event-stream), each with the lease as data.
///
/// The first event is `granted`; `renewed` follows after every third of the ttl. The stream ends with `lost` as soon as
/// that is known, or with `released` and a reason if the gateway releases the lease itself (the gateway stops, or the
/// lease was held for `max_hold`). A caller that hangs up releases the lease.
///
/// In: `stream`: the places of the stream (admit_stream), which are free again when it ends.
http::response kept_response(lockcore::lock_manager& locks, lockcore::lease granted, std::chrono::milliseconds max_hold,
                             std::string origin, std::shared_ptr<void> stream);

/// Returns the answer for a caller that watches a lease without keeping it: a stream of events (text/event-stream),
/// each with the lease as data. The first event is `held`; the stream ends with `lost` or `released` as soon as the
/// lease has ended, or without them when the caller's credential ends or the gateway stops. A comment is sent each 10
/// s.
///
/// Errors: errc::lease_lost · no_quorum · too_many_requests.
http::awaitable_response watch_lease(const lease_services& services, lockcore::lease_claims claims, http::request r);

}  // namespace fencegate::api
