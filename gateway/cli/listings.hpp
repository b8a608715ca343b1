#pragma once

#include <gateway/cli/client.hpp>

#include <optional>
#include <string>

namespace fencegate::cli {

/// Selects live leases. An empty text selects all.
struct lease_filter {
    std::string prefix;
    std::size_t limit = 1'000;
};

/// Selects events, as GET /v1/history does. An empty text selects all.
struct history_filter {
    std::string resource, prefix, event, owner, principal, token_min, token_max, trace_id, write_id, from, to;
    bool ascending = false;
    std::size_t limit = 100;
};

/// Prints the live leases. Throws gateway_unreachable, gateway_refusal.
void list_leases(const client& gateway, const lease_filter& filter, bool json);

/// Prints the names of the resources with a live lease and of those with one of the newest events, each once, in their
/// order. Throws gateway_unreachable, gateway_refusal.
void list_resources(const client& gateway, const std::string& prefix);

/// Prints events of the history. Throws gateway_unreachable, gateway_refusal.
void list_history(const client& gateway, const history_filter& filter, bool json);

/// Prints new events as they are recorded, and reconnects when the connection breaks. Returns when the output can't be
/// written any more. Throws as list_history.
void follow_history(const client& gateway, const history_filter& filter, bool json);

}  // namespace fencegate::cli
