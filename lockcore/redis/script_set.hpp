#pragma once

#include <proto/command.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockcore::redis {

/// A Lua script, and the SHA-1 under which Redis caches it.
struct script {
    std::string text;
    std::string sha1;
};

/// The scripts of a command: without and with shared resources.
inline constexpr std::size_t script_variants = 2;
/// Returns the script of a command. `shared`: for a call in which a lease has shared resources.
const script& script_for(command_kind kind, bool shared = false);
const script& identify_script();
const script& readmit_script();
const script& announce_script();
/// The scripts of FAST READMISSION.
const script& mark_script();
const script& read_leases_script();
const script& install_script();

/// Formats the script call for a batch of commands of one kind, as RESP: EVALSHA, or EVAL if `with_source`.
std::string format_batch(command_kind kind, std::span<const batch_item> items, std::string_view run_id,
                         bool with_source);

}  // namespace lockcore::redis
