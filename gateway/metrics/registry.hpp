#pragma once

#include <gateway/metrics/lease_meter.hpp>
#include <gateway/metrics/readings.hpp>
#include <gateway/metrics/request_meter.hpp>

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
    explicit registry(lockcore::event_observer& events) : requests_(registry_), leases_(registry_, events) {}

    http::request_observer& requests() { return requests_; }
    lockcore::event_observer& leases() { return leases_; }
    /// Adds the metrics that are read when they are scraped. Called once, before the first scrape.
    void add_readings(readings::sources sources) { readings_.emplace(std::move(sources)); }

    /// Returns all metrics in Prometheus' text format 0.0.4.
    std::string expose() const;

  private:
    prometheus::Registry registry_;
    request_meter requests_;
    lease_meter leases_;
    std::optional<readings> readings_;
};

}  // namespace fencegate::metrics
