#include <gateway/metrics/lease_meter.hpp>
#include <gateway/metrics/seconds.hpp>

#include <utility>

namespace fencegate::metrics {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries wait_buckets{.001, .005, .01, .05, .1, .5, 1, 5};
const prometheus::Histogram::BucketBoundaries hold_buckets{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300};

}  // namespace

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
        found.held = &holds_.Add(label, hold_buckets);
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
            count.held->Observe(to_seconds(e.at - e.granted_at));
            break;
        case lockcore::event_kind::lease_released:
            count.held->Observe(to_seconds(e.at - e.granted_at));
            break;
        default:
            break;
    }
    next_.on_event(std::move(e));
}

}  // namespace fencegate::metrics
