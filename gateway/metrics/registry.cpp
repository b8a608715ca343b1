#include <gateway/metrics/registry.hpp>

#include <prometheus/text_serializer.h>

#include <iterator>

namespace fencegate::metrics {

std::string registry::expose() const {
    auto families = registry_.Collect();
    if (readings_) {
        auto read = readings_->Collect();
        std::move(read.begin(), read.end(), std::back_inserter(families));
    }
    return prometheus::TextSerializer().Serialize(families);
}

}  // namespace fencegate::metrics
