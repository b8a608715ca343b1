#pragma once

#include <lockcore/lease.hpp>
#include <proto/command.hpp>
#include <redis/resp.hpp>
#include <sim/world/context.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sim {

/// Identifies a process of a node, as `run_id` in INFO does. 0: none.
using run_number = std::uint32_t;

/// Commands that a gateway sends to a node at once, in RESP. It holds values only, for it may outlive its sender.
struct request {
    std::shared_ptr<const std::vector<std::string>> commands;
    /// RELEASE after a failed attempt: the attempts; none of them may have a lease on the node afterwards.
    std::vector<sim_nonce> undone;
    /// The script of commands about leases.
    std::optional<lockcore::command_kind> script;
};

/// The answers to a request, one for each command.
struct reply {
    std::vector<lockcore::redis::reply> answers;
};

/// What a node published on the channel of a gateway: the lease `ended` on `resource` ended.
struct release_message {
    std::string mark, ended, resource;
    bool revoked = false;
};

/// Returns how the checkers name an attempt: the second half of its nonce.
sim_nonce to_number(const lockcore::nonce& attempt);
/// Parses the second half of a nonce that `lease` begins with; 0 if it is no lease.
sim_nonce nonce_of_lease(std::string_view lease);

/// The name of a resource; names of one bucket share a counter (options::bucket_of).
const lockcore::resource_name& name_of(const options& o, std::uint32_t resource);
/// Returns the names of the resources that are not shared.
std::vector<lockcore::resource_name> names_of(const options& o, resource_set set);
/// Returns the number of the resource with this name.
std::uint32_t resource_of(std::string_view name);
resource_set set_of(const std::vector<lockcore::resource_name>& names);
/// Returns the resources of a request or of claims.
template <class Names>
resource_set set_of(const Names& of) {
    return static_cast<resource_set>(set_of(of.resources) | set_of(of.shared) << shared_bits);
}
resource_set set_of(const lockcore::lease_call& call);

}  // namespace sim
