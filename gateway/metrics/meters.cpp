#include <gateway/metrics/meters.hpp>

#include <gateway/http/codec/problem.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace fencegate::metrics {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries wait_buckets{.001, .005, .01, .05, .1, .5, 1, 5};
const prometheus::Histogram::BucketBoundaries hold_buckets{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300};

const prometheus::Histogram::BucketBoundaries request_buckets{.001, .0025, .005, .01, .025, .05, .1,
                                                              .25,  .5,    1,    2.5, 5,    10};

/// The problems that concern a lease.
constexpr std::array<std::string_view, 6> lease_slugs{"resource-locked", "no-quorum",           "too-many-waiters",
                                                      "lease-lost",      "lease-not-authentic", "renewals-exhausted"};

/// The service addresses answer with the same problems, but do not fail because of a lease.
bool is_about_leases(const http::served_request& request) {
    const std::string_view route = request.route_path;
    return (route.starts_with("/v1/") || route.starts_with("/rest/v1/")) &&
           std::ranges::find(lease_slugs, request.problem) != lease_slugs.end();
}

}  // namespace

std::string prefix_labels::label_of(std::string_view resource) {
    const auto slash = resource.find('/');
    if (slash == std::string_view::npos) return "-";
    const std::string_view prefix = resource.substr(0, slash);
    const std::lock_guard hold(mutex_);
    if (const auto found = known_.find(prefix); found != known_.end()) return *found;
    if (known_.size() >= prefixes_max) return "other";
    return *known_.emplace(prefix).first;
}

lease_meter::lease_meter(prometheus::Registry& registry, lockcore::event_observer& next)
    : next_(next),
      waits_(BuildHistogram()
                 .Name("distributed_lock_wait_seconds")
                 .Help("Time from asking for a lease to the answer; outcome: granted or refused.")
                 .Register(registry)),
      holds_(BuildHistogram()
                 .Name("distributed_lock_hold_seconds")
                 .Help("Time from a lease's grant to its release or revocation.")
                 .Register(registry)),
      grants_(BuildCounter().Name("distributed_lock_grants_total").Help("Leases granted.").Register(registry)),
      thin_grants_(BuildCounter()
                       .Name("distributed_lock_thin_grants_total")
                       .Help("Leases that only a bare majority held when every node had answered or timed out.")
                       .Register(registry)),
      renewals_(BuildCounter().Name("distributed_lock_renewals_total").Help("Leases renewed.").Register(registry)),
      revocations_(
          BuildCounter().Name("distributed_lock_revocations_total").Help("Leases revoked.").Register(registry)),
      node_events_(BuildCounter()
                       .Name("fencegate_node_events_total")
                       .Help("Redis nodes quarantined and readmitted, and epochs raised.")
                       .Register(registry)) {}

lease_meter::prefix_counters& lease_meter::counters_of(const lockcore::event& e) {
    const std::string prefix = prefixes_.label_of(e.resources.front().str());
    const std::lock_guard hold(mutex_);
    prefix_counters& found = by_prefix_[prefix];
    if (found.granted_after == nullptr) {
        const prometheus::Labels label{{"resource_prefix", prefix}};
        found.refused_after = &waits_.Add({{"resource_prefix", prefix}, {"outcome", "refused"}}, wait_buckets);
        found.time_held = &holds_.Add(label, hold_buckets);
        found.granted = &grants_.Add(label);
        found.thin = &thin_grants_.Add(label);
        found.renewed = &renewals_.Add(label);
        found.revoked = &revocations_.Add(label);
        found.granted_after = &waits_.Add({{"resource_prefix", prefix}, {"outcome", "granted"}}, wait_buckets);
    }
    return found;
}

void lease_meter::on_event(lockcore::event e) {
    if (e.resources.empty()) {
        node_events_.Add({{"event", lockcore::to_string(e.kind)}}).Increment();
        return next_.on_event(std::move(e));
    }
    const prefix_counters& count = counters_of(e);
    switch (e.kind) {
        case lockcore::event_kind::lease_granted:
            count.granted->Increment();
            count.granted_after->Observe(to_seconds(e.waited));
            break;
        case lockcore::event_kind::lease_thin:
            count.thin->Increment();
            return;  // not recorded in the history: the next renewal restores the lease on all nodes
        case lockcore::event_kind::lease_refused:
            count.refused_after->Observe(to_seconds(e.waited));
            break;
        case lockcore::event_kind::lease_renewed:
            count.renewed->Increment();
            break;
        case lockcore::event_kind::lease_revoked:
            count.revoked->Increment();
            count.time_held->Observe(to_seconds(e.at - e.granted_at));
            break;
        case lockcore::event_kind::lease_released:
            count.time_held->Observe(to_seconds(e.at - e.granted_at));
            break;
        default:
            break;
    }
    next_.on_event(std::move(e));
}

request_meter::request_meter(prometheus::Registry& registry)
    : requests_(BuildCounter()
                    .Name("fencegate_http_requests_total")
                    .Help("Requests by route and status; 499: the caller closed the connection before the answer.")
                    .Register(registry)),
      seconds_(BuildHistogram()
                   .Name("fencegate_http_request_seconds")
                   .Help("Time from a request's last byte to its answer, waiting for a lease included.")
                   .Register(registry)),
      problems_(BuildCounter()
                    .Name("fencegate_http_problems_total")
                    .Help("Problem documents by slug (/problems/{slug} explains each).")
                    .Register(registry)),
      lock_failures_(BuildCounter()
                         .Name("distributed_lock_failures_total")
                         .Help("Calls that failed because of a lease, writes included, by cause: the problem's slug.")
                         .Register(registry)) {
    // Counters start at 0: Prometheus counts no increase for a counter's first value, so that the first stale write
    // would not be noticed.
    for (const auto& kind : http::problem_kinds())
        by_problem_.emplace(kind.slug, &problems_.Add({{"slug", std::string(kind.slug)}}));
    for (const auto slug : lease_slugs)
        by_cause_.emplace(slug, &lock_failures_.Add({{"cause", std::string(slug)}}));
}

void request_meter::on_served(const http::served_request& request) noexcept {
    try {
        count(request);
    } catch (const std::exception& e) {
        spdlog::error("a request could not be counted: {}", e.what());
    }
}

void request_meter::count(const http::served_request& request) {
    prometheus::Counter* answered = nullptr;
    prometheus::Histogram* seconds = nullptr;
    prometheus::Counter* problem = nullptr;
    prometheus::Counter* cause = nullptr;
    {
        const std::lock_guard hold(mutex_);
        auto& by_answer = by_answer_[{request.route_path.data(), request.verb, request.status}];
        if (by_answer == nullptr) {
            by_answer = &requests_.Add({{"route", std::string(request.route_path)},
                                        {"method", std::string(http::to_string(request.verb))},
                                        {"status", std::to_string(request.status)}});
        }
        answered = by_answer;
        auto& by_route = by_route_[request.route_path.data()];
        if (by_route == nullptr)
            by_route = &seconds_.Add({{"route", std::string(request.route_path)}}, request_buckets);
        seconds = by_route;
        if (!request.problem.empty()) {
            problem = by_problem_.at(request.problem);
            if (is_about_leases(request)) {
                auto& by_cause = by_cause_[request.problem];
                if (by_cause == nullptr) by_cause = &lock_failures_.Add({{"cause", std::string(request.problem)}});
                cause = by_cause;
            }
        }
    }
    answered->Increment();
    seconds->Observe(to_seconds(request.time));
    if (problem != nullptr) problem->Increment();
    if (cause != nullptr) cause->Increment();
}

}  // namespace fencegate::metrics
