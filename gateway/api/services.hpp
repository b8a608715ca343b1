#pragma once

#include <gateway/config/config.hpp>

namespace lockcore {
class lock_manager;
}

namespace fencegate {

class event_sink;
class guard_watch;
class history_feed;
class leak_watch;
class metrics;
namespace pg {
class database;
class fence_executor;
class history_executor;
class read_executor;
class write_executor;
}  // namespace pg

namespace api {

class running_keys;

/// What the handlers work with. A bundle of references, copied freely.
///
/// Lifetime: what it refers to outlives the http::server that has the routes.
struct services {
    const config& settings;
    lockcore::lock_manager& locks;
    pg::database& database;
    pg::write_executor& writes;
    pg::read_executor& reads;
    pg::history_executor& history;
    pg::fence_executor& fences;
    event_sink& events;
    history_feed& feed;
    running_keys& keys;
    const metrics& measured;
    const leak_watch& leaks;
    const guard_watch& guard;
};

}  // namespace api
}  // namespace fencegate
