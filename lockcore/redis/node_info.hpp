#pragma once

#include <proto/node_supervisor.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lockcore::redis {

/// What was read from a node, as text.
struct node_look {
    std::vector<std::string> record;  ///< IDENTIFY's answer; empty where it was not asked.
    std::string info;                 ///< INFO
    /// `name value` of each of sync_settings, with a space behind; empty where CONFIG is forbidden.
    std::string persistence;
};

/// How many fields IDENTIFY answers.
inline constexpr std::size_t record_fields = 7;

/// The settings that decide whether a node syncs every write.
inline constexpr std::array<const char*, 3> sync_settings = {"appendonly", "appendfsync", "no-appendfsync-on-rewrite"};

/// The facts in it; without a record the fields that come from fg:node stay empty.
node_facts facts_from(const node_look& look);

/// The value of `key:value` in INFO's text; empty if it is not there.
std::string_view info_field(std::string_view info, std::string_view key);

/// 0 for what is no number.
std::uint64_t number_from(std::string_view text);

}  // namespace lockcore::redis
