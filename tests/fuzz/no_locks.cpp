// In place of the product's lock manager, which needs threads and nodes: what the targets read opens no lease.
#include "fuzz.hpp"

#include <lockcore/lock_manager.hpp>

lockcore::result<lockcore::lease_claims> lockcore::lock_manager::verify_lease_id(std::string_view) const {
    fencegate::fuzz::require(false, "reading a request opens no lease");
    return failure{};
}
