#include <gateway/metrics/registry.hpp>

#include <prometheus/text_serializer.h>

#include <iterator>

namespace fencegate::metrics {

registry::registry(lockcore::event_observer& events)
    : requests_(registry_),
      leases_(registry_, events),
      reloads_(prometheus::BuildCounter()
                   .Name("fencegate_config_reloads_total")
                   .Help("Reloads of the configuration (SIGHUP); result: applied, or refused because of a fault.")
                   .Register(registry_)),
      reloads_applied_(reloads_.Add({{"result", "applied"}})),
      reloads_refused_(reloads_.Add({{"result", "refused"}})) {}

std::string registry::expose() const {
    auto families = registry_.Collect();
    if (readings_) {
        auto read = readings_->Collect();
        std::move(read.begin(), read.end(), std::back_inserter(families));
    }
    return prometheus::TextSerializer().Serialize(families);
}

}  // namespace fencegate::metrics
