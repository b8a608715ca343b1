#include <gateway/api/writes/waiting_writes.hpp>

#include <gateway/pg/write/write_executor.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <variant>

namespace fencegate::api {
namespace {

namespace asio = boost::asio;

/// Returns a text that is equal for writes of one holder on the same resources, for the same time. No part of it has a
/// line break.
std::string make_lease_key(const lockcore::acquire_request& wanted) {
    std::vector<std::string> names;
    for (const auto& resource : wanted.resources)
        names.push_back(resource.str());
    std::ranges::sort(names);
    std::string out = wanted.holder.principal + '\n' + wanted.holder.owner + '\n' + std::to_string(wanted.ttl.count());
    for (const auto& name : names)
        out.append("\n").append(name);
    return out;
}

bool calls_function(const one_shot_write& write) {
    return std::ranges::any_of(write.context.call.operations,
                               [](const auto& operation) { return std::holds_alternative<call_operation>(operation); });
}

}  // namespace

asio::awaitable<void> one_shot_write::await_answer() {
    co_await answered_->async_receive(asio::use_awaitable);
}

void waiting_writes::add(const one_shot_ptr& write) {
    write->lease_key_ = make_lease_key(*write->context.call.own_lease);
    const std::lock_guard lock(mutex_);
    write->arrival_ = ++added_;
    write->state_ = one_shot_write::state::waiting;
    by_lease_key_[write->lease_key_].push_back(write);
}

bool waiting_writes::withdraw(one_shot_write& write) {
    const std::lock_guard lock(mutex_);
    if (write.state_ != one_shot_write::state::waiting) return write.state_ == one_shot_write::state::withdrawn;
    write.state_ = one_shot_write::state::withdrawn;
    const auto found = by_lease_key_.find(write.lease_key_);
    std::erase_if(found->second, [&write](const one_shot_ptr& each) { return each.get() == &write; });
    if (found->second.empty()) by_lease_key_.erase(found);
    return true;
}

std::vector<one_shot_ptr> waiting_writes::take_group(const one_shot_ptr& first) {
    std::vector<one_shot_ptr> group{first};
    if (calls_function(*first)) return group;
    std::size_t operations = first->context.call.operations.size();
    {
        const std::lock_guard lock(mutex_);
        const auto found = by_lease_key_.find(first->lease_key_);
        if (found == by_lease_key_.end()) return group;
        bool full = false;  // then smaller ones do not overtake
        std::erase_if(found->second, [&](const one_shot_ptr& write) {
            if (full || calls_function(*write)) return false;
            operations += write->context.call.operations.size();
            full = group.size() == group_max || operations > pg::shared_operations_max;
            if (full) return false;
            write->state_ = one_shot_write::state::taken;
            write->answered_.emplace(write->executor_, 1);
            group.push_back(write);
            return true;
        });
        if (found->second.empty()) by_lease_key_.erase(found);
    }
    for (const auto& write : group) {
        if (write == first) continue;
        asio::post(write->executor_, [write] { write->end_acquisition.emit(asio::cancellation_type::terminal); });
    }
    std::ranges::sort(group, {}, [](const one_shot_ptr& write) { return write->arrival_; });
    return group;
}

}  // namespace fencegate::api
