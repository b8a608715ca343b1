#pragma once

#include <gateway/config/sections.hpp>
#include <gateway/metrics/meters.hpp>

#include <lockcore/types.hpp>

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockcore {
class lock_manager;
}

namespace fencegate {
struct memory_budgets;
namespace audit {
class digest_maker;
class event_sink;
class storage_watch;
}  // namespace audit
namespace limits {
class limiter;
}
namespace pg {
class database;
}
}  // namespace fencegate

namespace fencegate::metrics {

/// The state of this process, from /proc.
struct process_status {
    std::chrono::duration<double> processor_time{};
    std::size_t resident_bytes = 0;
    std::size_t open_files = 0, open_files_max = 0;
    std::chrono::system_clock::time_point started_at{};
};

process_status read_process_status();

class guard_watch;
class leak_watch;

/// Metrics that are read when they are scraped: the nodes, the queues, the database, the event buffer, refusals by
/// limits, the process.
///
/// Threads:  Collect() from any thread.
/// Lifetime: everything in `sources` outlives it.
class readings final : public prometheus::Collectable {
  public:
    struct sources {
        const lockcore::lock_manager& locks;
        const leak_watch& leaks;
        const pg::database& database;
        const audit::event_sink& events;
        const audit::digest_maker& digests;
        const guard_watch& guard;
        const audit::storage_watch& storage;
        const memory_budgets& memory;
        const limits::limiter& limiter;
        std::string version;
        lockcore::cell_id cell;
    };
    explicit readings(sources read_sources) : sources_(std::move(read_sources)) {}

    std::vector<prometheus::MetricFamily> Collect() const override;

  private:
    sources sources_;
};

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
    /// Replaces all. Called at the start and by reloads, one after the other.
    void set_certificates(const std::vector<certificate_end>& ends);
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
    prometheus::Family<prometheus::Gauge>& certificates_;
    std::vector<prometheus::Gauge*> certificates_now_;
    std::optional<readings> readings_;
};

}  // namespace fencegate::metrics
