// In place of the product's lock manager and of its buffer of events, which need threads, nodes and a database: what
// the targets read opens no lease and is no event.
#include "fuzz.hpp"

#include <gateway/audit/event_sink.hpp>

#include <lockcore/lock_manager.hpp>

lockcore::result<lockcore::lease_claims> lockcore::lock_manager::verify_lease_id(std::string_view) const {
    fencegate::fuzz::require(false, "reading a request opens no lease");
    return failure{};
}

void fencegate::audit::event_sink::add(history_item) {
    fuzz::require(false, "reading a request is no event");
}
