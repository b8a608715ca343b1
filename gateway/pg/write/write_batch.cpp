#include <gateway/pg/write/write_batch.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace fencegate::pg {

bool calls_function(const write_request& request) {
    return std::ranges::any_of(request.operations,
                               [](const auto& operation) { return std::holds_alternative<call_operation>(operation); });
}

void sort_by_resource(std::vector<pending_write>& waiting) {
    std::ranges::stable_sort(waiting, {}, &pending_write::first_resource);
}

std::vector<pending_write> take_next_batch(std::vector<pending_write>& waiting) {
    std::vector<pending_write> batch;
    std::vector<pending_write> later;
    std::size_t operations = 0;
    std::string highest;
    bool full = false;  // then all later writes wait, even smaller ones, so that writes on one resource stay in order
    for (auto& write : waiting) {
        const auto& request = write.request;
        full = full || (!batch.empty() && operations + request.operations.size() > shared_operations_max);
        if (full || (!batch.empty() && highest > write.first_resource())) {
            later.push_back(std::move(write));
            continue;
        }
        operations += request.operations.size();
        highest = request.resources.back().str();
        batch.push_back(std::move(write));
    }
    waiting = std::move(later);
    return batch;
}

}  // namespace fencegate::pg
