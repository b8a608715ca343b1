#pragma once

#include <gateway/metrics/labels.hpp>

#include <lockcore/events.hpp>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <string>

namespace fencegate::metrics {

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
        prometheus::Histogram* held = nullptr;
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

}  // namespace fencegate::metrics
