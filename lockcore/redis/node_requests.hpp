#pragma once

#include <proto/core_io.hpp>
#include <redis/reply_reader.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore::redis {

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
