#pragma once

#include <gateway/config/config.hpp>

#include <atomic>

namespace lockcore {
class hmac_sha256;
class lock_manager;
}  // namespace lockcore

namespace fencegate {

namespace audit {
class event_sink;
class history_feed;
class storage_watch;
}  // namespace audit
namespace limits {
class held_leases;
class limiter;
}  // namespace limits
namespace metrics {
class guard_watch;
class leak_watch;
class registry;
class waiting_watch;
}  // namespace metrics
namespace pg {
class database;
}  // namespace pg
}  // namespace fencegate

namespace fencegate::api {

class running_keys;
class waiting_writes;

// What the handlers of each area use. They take it by reference; a helper takes the one part that it needs.
//
// Lifetime: it and the referenced objects outlive the http::server that has the routes.

struct lease_services {
    const config& settings;
    lockcore::lock_manager& locks;
    pg::database& database;
    audit::event_sink& events;
    limits::limiter& limiter;
    limits::held_leases& held_leases;  ///< The leases of each principal, which limits.principal.leases_max bounds.
    const metrics::waiting_watch& waiting;
};

/// Of guarded writes, and of tables and functions.
struct write_services {
    const config& settings;
    lockcore::lock_manager& locks;
    pg::database& database;
    audit::storage_watch& storage;
    running_keys& keys;
    waiting_writes& waiting;       ///< The one-shot writes that acquire their leases.
    const lease_services& leases;  ///< For a write that acquires a lease of its own.
};

struct history_services {
    const config& settings;
    lockcore::lock_manager& locks;
    pg::database& database;
    audit::event_sink& events;
    audit::history_feed& feed;  ///< How far the stream may go.
    limits::limiter& limiter;
};

/// Of the state of the gateway, its nodes and the guard.
struct state_services {
    const config& settings;
    lockcore::lock_manager& locks;
    pg::database& database;
    audit::event_sink& events;
    audit::storage_watch& storage;
    limits::limiter& limiter;
    const metrics::registry& metric_registry;
    const metrics::leak_watch& leaks;
    const metrics::guard_watch& guard;
    const lockcore::hmac_sha256& lease_keys;
    const std::atomic<bool>& stopping;  ///< The gateway will stop: it serves, but is not ready.
};

/// The services of all areas, for the routes.
struct gateway_services {
    const lease_services& leases;
    const write_services& writes;
    const history_services& history;
    const state_services& state;
};

}  // namespace fencegate::api
