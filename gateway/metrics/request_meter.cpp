#include <gateway/http/codec/problem.hpp>
#include <gateway/metrics/request_meter.hpp>
#include <gateway/metrics/seconds.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <string>

namespace fencegate::metrics {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries buckets{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};

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
        if (by_route == nullptr) by_route = &seconds_.Add({{"route", std::string(request.route_path)}}, buckets);
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
