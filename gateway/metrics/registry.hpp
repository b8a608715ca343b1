#pragma once

#include <gateway/metrics/meters.hpp>
#include <gateway/metrics/readings.hpp>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/registry.h>

#include <optional>
#include <string>

namespace fencegate::metrics {

/// All metrics of the gateway.
///
/// Threads:  safe.
/// Lifetime: outlives the lock_manager and the http::server; the sources of its readings outlive the server.
class registry {
  public:
    /// Lease events are passed on to `events` after they were counted.
    explicit registry(lockcore::event_observer& events);

    http::request_observer& requests() { return requests_; }
    lockcore::event_observer& leases() { return leases_; }
    /// Counts a reload of the configuration; a faulty one is refused.
    void count_reload(bool applied) { (applied ? reloads_applied_ : reloads_refused_).Increment(); }
    /// Adds the metrics that are read when they are scraped. Called once, before the first scrape.
    void add_readings(readings::sources sources) { readings_.emplace(std::move(sources)); }

    /// Returns all metrics in Prometheus' text format 0.0.4.
    std::string expose() const;

  private:
    prometheus::Registry registry_;
    request_meter requests_;
    lease_meter leases_;
    prometheus::Family<prometheus::Counter>& reloads_;
    prometheus::Counter &reloads_applied_, &reloads_refused_;
    std::optional<readings> readings_;
};

}  // namespace fencegate::metrics
