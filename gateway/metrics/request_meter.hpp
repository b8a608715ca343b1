#pragma once

#include <gateway/http/transport/request_observer.hpp>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

namespace fencegate::metrics {

/// Counts and times requests by route and answer, and what went wrong by its slug; what went wrong with leases once
/// more as distributed_lock_failures_total.
///
/// Threads: safe. Lifetime: outlives the http::server; the registry outlives it.
class request_meter final : public http::request_observer {
  public:
    explicit request_meter(prometheus::Registry& registry);

    void on_served(const http::served_request& what) noexcept override;

  private:
    /// Route, method, status. Routes live as long as the server, and their templates differ: the text's place names
    /// them.
    using answer_key = std::tuple<const char*, http::method, unsigned>;
    void count(const http::served_request& what);

    prometheus::Family<prometheus::Counter>& requests_;
    prometheus::Family<prometheus::Histogram>& seconds_;
    prometheus::Family<prometheus::Counter>& problems_;
    prometheus::Family<prometheus::Counter>& lock_failures_;

    std::mutex mutex_;  ///< Of the maps: what they point to is safe by itself.
    std::map<answer_key, prometheus::Counter*> by_answer_;
    std::map<const char*, prometheus::Histogram*> by_route_;
    std::map<std::string_view, prometheus::Counter*> by_problem_, by_cause_;  ///< Slugs live for ever.
};

}  // namespace fencegate::metrics
