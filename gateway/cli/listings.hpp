#pragma once

#include <gateway/cli/client.hpp>

#include <optional>
#include <string>

namespace fencegate::cli {

/// Which live leases. Texts are empty where anything will do.
struct lease_filter {
    std::string prefix;
    std::size_t limit = 1'000;
};

/// Which events, as GET /v1/history has it. Texts are empty where anything will do.
struct history_filter {
    std::string resource, prefix, event, owner, principal, token_min, token_max, trace_id, write_id, from, to;
    bool ascending = false;
    std::size_t limit = 100;
};

/// Lists the live leases. Throws unreachable, refused.
void list_leases(const client& gateway, const lease_filter& wanted, bool json);

/// Lists what the history kept. Throws unreachable, refused.
void list_history(const client& gateway, const history_filter& wanted, bool json);

/// Shows what is still to come, as it comes, whatever happens to the connection meanwhile; ends where the output can't
/// be written any more. Throws as list_history.
void follow_history(const client& gateway, const history_filter& wanted, bool json);

}  // namespace fencegate::cli
