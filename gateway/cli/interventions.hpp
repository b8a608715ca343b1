#pragma once

#include <gateway/cli/client.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What operators order over HTTP. Each has a reason, which the history keeps.

namespace fencegate::cli {

struct revocation {
    std::vector<std::string> resources;
    std::string reason;
    std::optional<std::uint64_t> token;  ///< Only a lease with this token.
};

struct fence_repair {
    std::string resource;
    std::uint64_t fence = 0;
    std::string reason;
    bool confirmed = false;  ///< Lower the fence without asking.
};

/// Revokes the lease of each resource, the others also where one can't be.
///
/// Out:    the exit code. Errors: throws gateway_unreachable.
int revoke_leases(const client& gateway, const revocation& order, bool json_lines);

/// Sets the fence of a resource; to lower it, asks on a terminal.
///
/// Out:    the exit code. Errors: throws gateway_unreachable, gateway_refusal, and usage_error where it can't ask.
int repair_fence(const client& gateway, const fence_repair& order, bool json_lines);

}  // namespace fencegate::cli
