#pragma once

#include <gateway/metrics/lease_meter.hpp>
#include <gateway/metrics/readings.hpp>
#include <gateway/metrics/request_meter.hpp>

#include <prometheus/registry.h>

#include <optional>
#include <string>

namespace fencegate::metrics {

/// All that Prometheus is told, in one place.
///
/// Threads: safe. Lifetime: outlives the lock_manager and the http::server; what it reads from outlives the server.
class registry {
  public:
    /// `events`: where lease events go after they were counted.
    explicit registry(lockcore::event_observer& events) : requests_(registry_), leases_(registry_, events) {}

    http::request_observer& requests() { return requests_; }
    lockcore::event_observer& leases() { return leases_; }
    /// Once, before the first scrape.
    void read_from(readings::sources from) { readings_.emplace(std::move(from)); }

    /// In Prometheus' text format 0.0.4.
    std::string expose() const;

  private:
    prometheus::Registry registry_;
    request_meter requests_;
    lease_meter leases_;
    std::optional<readings> readings_;
};

}  // namespace fencegate::metrics
