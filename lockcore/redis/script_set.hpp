#pragma once

#include <proto/command.hpp>
#include <redis/lease_call.hpp>

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace lockcore::redis {

/// A Lua script, and the SHA-1 under which Redis caches it.
struct script {
    std::string text;
    std::string sha1;
};

/// Returns the script of a command.
const script& script_for(command_kind kind);
const script& identify_script();
const script& readmit_script();

/// One command of a batch: the call, and the token for CONFIRM, RENEW, HOLD, TOP-UP and INSPECT.
struct batch_item {
    std::shared_ptr<reply_target> target;
    fencing_token token{};
};

/// Formats the script call for a batch of commands of one kind, as RESP: EVALSHA, or EVAL if `with_source`.
std::string format_batch(command_kind kind, std::span<const batch_item> items, std::string_view run_id,
                         bool with_source);

}  // namespace lockcore::redis
