#pragma once

#include <lockcore/types.hpp>

#include <string>

namespace lockcore {

enum class node_state {
    unreachable,    ///< No connection, or no answer in time.
    identifying,    ///< Connected; run id, role and persistence are being read. Does not vote.
    quarantined,    ///< May have forgotten leases; sits out until every lease given before has run out.
    misconfigured,  ///< Can never vote as it is; `detail` says what to change.
    voting,         ///< Admitted under its run id.
};
const char* to_string(node_state state);

/// One node as one shard sees it.
struct node_status {
    std::string name;
    std::string address;  ///< host:port
    node_state state = node_state::unreachable;
    std::string detail;  ///< Why it does not vote; empty while it does.
    std::string run_id;  ///< Empty while unknown.
    epoch admitted_epoch{};
    std::chrono::microseconds latency{0};  ///< Of the latest answer; 0 = none yet.
    milliseconds quarantine_left{0};
};

}  // namespace lockcore
