#pragma once

#include <proto/core_io.hpp>
#include <proto/node_supervisor.hpp>
#include <redis/resp.hpp>

#include <array>
#include <optional>
#include <span>
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

/// Returns the commands of a request, as RESP, to be sent at once. Redis answers each of them, in order.
std::vector<std::string> format_request(const node_request::any& request);

/// Reads the answers to the commands of format_request: one for each of them.
node_response::any parse_response(const node_request::any& request, std::span<const reply> replies);

struct batch_reply {
    std::vector<node_reply> replies;
    std::string error;
};
/// Reads the reply to a script call of this kind of commands.
///
/// Out: the reply to each command; `error` if the whole call was refused, or is not answered by a list.
batch_reply parse_batch(command_kind kind, const reply& answer);

/// What a node publishes when a lease ends (release.lua).
struct lease_end {
    nonce ended;
    std::string_view resource;  ///< One that the lease covered. A part of the message.
    bool revoked = false;       ///< With all its holds; not released by its holder.
};
/// Reads a message of the channel of wake marks; empty for a reply of another form.
std::optional<lease_end> parse_lease_end(const reply& message);

}  // namespace lockcore::redis
