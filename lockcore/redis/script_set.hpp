#pragma once

#include <proto/command.hpp>
#include <redis/lease_call.hpp>

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace lockcore::redis {

/// A script and the name under which Redis keeps it.
struct script {
    std::string text;
    std::string sha1;
};

/// The script that answers a command.
const script& script_for(command_kind kind);
const script& identify_script();
const script& readmit_script();

/// One command of a batch: the call and the token it carries (CONFIRM, RENEW, INSPECT).
struct batch_item {
    std::shared_ptr<reply_target> target;
    fencing_token token{};
};

/// The whole EVALSHA (or EVAL, where the node has lost the script) for a batch of equal commands, as RESP.
std::string format_batch(command_kind kind, std::span<const batch_item> items, std::string_view run_id, bool with_text);

}  // namespace lockcore::redis
