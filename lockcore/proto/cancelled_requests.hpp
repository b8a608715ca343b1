#pragma once

#include <lockcore/lease.hpp>
#include <proto/timer_list.hpp>

#include <cstddef>
#include <string>
#include <unordered_map>

namespace lockcore {

/// The requests that were cancelled by their idempotency key, each until it can no longer be on its way or wait elsewhere.
///
/// Threads: not safe.
/// Limits:  as remember() says.
class cancelled_requests {
  public:
    struct entry {
        acquire_request request;
        monotonic_time until{};
        milliseconds pause{};  ///< Before the next search for its lease.
        timer_list::handle timer{};
    };

    /// Returns null if the request with this name (name_request) was not cancelled.
    entry* find(const std::string& name) {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &found->second;
    }

    /// Returns the entry of a request, a new one if there is none. Null if there are `most` entries, or three quarters of
    /// them are of the principal.
    entry* remember(const std::string& name, const acquire_request& request, std::size_t most) {
        if (entry* const known = find(name)) return known;
        const auto principal = of_principal_.find(request.holder.principal);
        const std::size_t used = principal == of_principal_.end() ? 0 : principal->second;
        if (by_name_.size() >= most || used >= most - most / 4) return nullptr;
        ++of_principal_[request.holder.principal];
        return &by_name_.emplace(name, entry{request}).first->second;
    }

    void forget(const std::string& name) {
        const auto found = by_name_.extract(name);
        const auto principal = of_principal_.find(found.mapped().request.holder.principal);
        if (--principal->second == 0) of_principal_.erase(principal);
    }

  private:
    std::unordered_map<std::string, entry> by_name_;
    std::unordered_map<std::string, std::size_t> of_principal_;
};

}  // namespace lockcore
