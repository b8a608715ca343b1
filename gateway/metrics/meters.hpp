#pragma once

#include <gateway/http/message.hpp>

#include <lockcore/events.hpp>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

namespace fencegate::metrics {

/// Returns a duration in seconds, the unit of all metrics of time.
double to_seconds(auto duration) {
    return std::chrono::duration<double>(duration).count();
}

/// Makes the label `resource_prefix`: a resource's name up to its first slash, never the whole name. There are at most
/// `prefixes_max` of them, whatever names callers use; further prefixes become "other".
///
/// Threads: safe.
class prefix_labels {
  public:
    static constexpr std::size_t prefixes_max = 50;

    /// Returns the label of a resource; "-" for a name without a slash.
    std::string label_of(std::string_view resource);

  private:
    std::mutex mutex_;
    std::set<std::string, std::less<>> known_;
};

/// Counts and times leases by lockcore's events, and passes the events on to `next`.
///
/// Threads:  safe.
/// Lifetime: outlives the lock_manager; the registry and `next` outlive it.
class lease_meter final : public lockcore::event_observer {
  public:
    lease_meter(prometheus::Registry& registry, lockcore::event_observer& next);

    void on_event(lockcore::event e) override;

  private:
    /// The metrics of one resource_prefix.
    struct prefix_counters {
        prometheus::Histogram* refused_after = nullptr;
        prometheus::Histogram* granted_after = nullptr;
        prometheus::Histogram* time_held = nullptr;
        prometheus::Counter* granted = nullptr;
        prometheus::Counter* thin = nullptr;
        prometheus::Counter* renewed = nullptr;
        prometheus::Counter* revoked = nullptr;
    };
    prefix_counters& counters_of(const lockcore::event& e);

    lockcore::event_observer& next_;
    prefix_labels prefixes_;
    prometheus::Family<prometheus::Histogram>& waits_;
    prometheus::Family<prometheus::Histogram>& holds_;
    prometheus::Family<prometheus::Counter>& grants_;
    prometheus::Family<prometheus::Counter>& thin_grants_;
    prometheus::Family<prometheus::Counter>& renewals_;
    prometheus::Family<prometheus::Counter>& revocations_;
    prometheus::Family<prometheus::Counter>& node_events_;
    std::mutex mutex_;  ///< Guards the map; its values are not moved or changed once they are there.
    std::map<std::string, prefix_counters> by_prefix_;
};

/// Counts and times requests by route and answer, and counts problems by slug; problems with leases are also counted in
/// distributed_lock_failures_total.
///
/// Threads:  safe.
/// Lifetime: outlives the http::server; the registry outlives it.
class request_meter final : public http::request_observer {
  public:
    explicit request_meter(prometheus::Registry& registry);

    void on_served(const http::served_request& request) noexcept override;

  private:
    /// Route, method, status. The address of a route's template identifies it: routes live as long as the server, and
    /// no two have the same template.
    using answer_key = std::tuple<const char*, http::method, unsigned>;
    void count(const http::served_request& request);

    prometheus::Family<prometheus::Counter>& requests_;
    prometheus::Family<prometheus::Histogram>& seconds_;
    prometheus::Family<prometheus::Counter>& problems_;
    prometheus::Family<prometheus::Counter>& lock_failures_;

    std::mutex mutex_;  ///< Guards the maps; the metrics that they point to are thread-safe.
    std::map<answer_key, prometheus::Counter*> by_answer_;
    std::map<const char*, prometheus::Histogram*> by_route_;
    std::map<std::string_view, prometheus::Counter*> by_problem_, by_cause_;  ///< Slugs live for ever.
};

}  // namespace fencegate::metrics
