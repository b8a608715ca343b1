#pragma once

#include <gateway/http/message.hpp>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

namespace fencegate::metrics {

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
