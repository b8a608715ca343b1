#pragma once

#include <gateway/cli/client.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

/// Selects live leases. An empty text selects all.
struct lease_filter {
    std::string prefix;
    std::size_t limit = 1'000;
};

/// Selects events, as GET /v1/history does, or changes of rows, as GET /v1/changes does. An empty text or list selects
/// all.
struct history_filter {
    std::string resource, prefix, owner, principal, token_min, token_max, trace_id, write_id, from, to;
    std::string after, place;  ///< Of follow_history: the id after which it begins, and the file that keeps the id.
    std::string at;            ///< Of history: shows the resource as it was then, in place of events.
    std::vector<std::string> events;
    std::string table, column;
    std::vector<std::string> key;  ///< column=value
    bool ascending = false;
    std::optional<std::size_t> limit;
};

/// Prints the live leases. Throws gateway_unreachable, gateway_refusal.
void list_leases(const client& gateway, const lease_filter& filter, bool json);

/// Prints the names of the resources with a live lease and of those with one of the newest events, each once, in their
/// order. Throws gateway_unreachable, gateway_refusal.
void list_resources(const client& gateway, const std::string& prefix);

/// Prints events of the history. Throws gateway_unreachable, gateway_refusal.
void list_history(const client& gateway, const history_filter& filter, bool json);

/// Prints the resource of the filter as it was at the time `at`. Throws as list_history.
void show_resource_at(const client& gateway, const history_filter& filter, bool json);

/// The same for changes of rows.
void list_changes(const client& gateway, const history_filter& filter, bool json);

/// Prints the events (/v1/history) or changes (/v1/changes) as CSV as the gateway sends it, all of them unless the
/// filter has a limit. Throws gateway_unreachable, also when the answer is incomplete, and gateway_refusal.
void print_csv(const client& gateway, std::string_view path, const history_filter& filter);

/// Prints new events as they are recorded, and reconnects when the connection breaks. Returns when the output can't be
/// written any more. With a place the file has the id of the last printed event, and is where the next call begins;
/// each event is printed at least once. Throws as list_history, and std::runtime_error if the file can't be used.
void follow_history(const client& gateway, const history_filter& filter, bool json);

/// Prints whether a gateway is ready, its version and the state of its Redis nodes.
///
/// Out:    exit_ok if the gateway is ready, else exit_failed.
/// Errors: throws gateway_unreachable, gateway_refusal.
int show_status(const client& gateway, bool json);

}  // namespace fencegate::cli
