#pragma once

#include <proto/node_supervisor.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore::redis {

/// What was read from a node, as text that is not yet parsed.
struct raw_node_facts {
    std::vector<std::string> record;  ///< The reply to IDENTIFY; empty if it was not sent.
    std::string info;                 ///< The reply to INFO.
    /// `name value ` for each of sync_settings; empty if CONFIG is not allowed.
    std::string persistence;
    bool replays_transactions = false;  ///< The reply to replay_question was OK.
};

/// The number of fields in the reply to IDENTIFY.
inline constexpr std::size_t record_fields = 8;

/// The settings that decide whether a node syncs every write.
inline constexpr std::array<std::string_view, 3> sync_settings = {"appendonly", "appendfsync",
                                                                  "no-appendfsync-on-rewrite"};

/// Asks whether the user `default` may write. Redis executes the transactions of the append-only file as this user when
/// it starts, also where nobody can log in as it, and drops without a word what the user may not execute (corrected in
/// Redis at the end of 2025).
inline constexpr std::array<std::string_view, 6> replay_question = {"ACL", "DRYRUN",     "default",
                                                                    "SET", "fg:token:0", "0"};

/// Parses what was read. Without a record the fields that come from fg:node stay empty.
node_facts parse_node_facts(const raw_node_facts& raw);

/// Returns the value of `key:value` in the reply to INFO; empty if there is none.
std::string_view find_info_field(std::string_view info, std::string_view key);

/// Returns the number at the beginning of the text; 0 if there is none.
std::uint64_t parse_number(std::string_view text);

}  // namespace lockcore::redis
