#pragma once

#include <proto/node_supervisor.hpp>

#include <string>
#include <string_view>

namespace lockcore::redis {

/// What was read from a node, as text.
struct node_look {
    std::string info;         ///< INFO
    std::string persistence;  ///< Values of appendonly and appendfsync, each followed by a space; empty where CONFIG is
                              ///< forbidden.
};

/// The facts in it; the fields that come from fg:node stay empty.
node_facts facts_from(const node_look& look);

/// The value of `key:value` in INFO's text; empty if it is not there.
std::string_view info_field(std::string_view info, std::string_view key);

/// 0 for what is no number.
std::uint64_t number_from(std::string_view text);

}  // namespace lockcore::redis
