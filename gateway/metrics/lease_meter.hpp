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

/// Counts and times leases by the events that lockcore tells, and passes these on.
///
/// Threads: safe. Lifetime: outlives the lock_manager; the registry and `next` outlive it.
class lease_meter final : public lockcore::event_observer {
  public:
    lease_meter(prometheus::Registry& registry, lockcore::event_observer& next);

    void on_event(lockcore::event e) override;

  private:
    /// What is counted of one resource_prefix.
    struct of_prefix {
        prometheus::Histogram* waited_in_vain = nullptr;
        prometheus::Histogram* waited = nullptr;
        prometheus::Histogram* held = nullptr;
        prometheus::Counter* granted = nullptr;
        prometheus::Counter* thin = nullptr;
        prometheus::Counter* renewed = nullptr;
        prometheus::Counter* revoked = nullptr;
    };
    of_prefix& counters_of(const lockcore::event& e);

    lockcore::event_observer& next_;
    prefix_labels prefixes_;
    prometheus::Family<prometheus::Histogram>& waits_;
    prometheus::Family<prometheus::Histogram>& holds_;
    prometheus::Family<prometheus::Counter>& grants_;
    prometheus::Family<prometheus::Counter>& thin_grants_;
    prometheus::Family<prometheus::Counter>& renewals_;
    prometheus::Family<prometheus::Counter>& revocations_;
    prometheus::Family<prometheus::Counter>& node_events_;
    std::mutex mutex_;  ///< Of the map; its values stay where they are and change no more.
    std::map<std::string, of_prefix> by_prefix_;
};

}  // namespace fencegate::metrics
