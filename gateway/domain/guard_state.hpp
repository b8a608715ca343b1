#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate {

/// What PostgreSQL says about the guard.
struct guard_report {
    std::vector<std::string> faults;  ///< What would let a change past it (fencing.watch_guard).
    boost::json::object state;        ///< As fencing.guard_state() gives it.
};

/// What the history takes, and what it has of direct SQL.
struct history_extent {
    std::int64_t bytes = 0;            ///< With its indexes.
    double oldest = 0;                 ///< Seconds since 1970 of its oldest event; 0 if it is empty.
    std::int64_t direct_refusals = 0;  ///< Of the last hour, among its last 10,000 refusals.
};

/// The states of a table in `tables` of fencing.guard_state(), the worst first.
inline constexpr std::array<std::string_view, 3> table_states{"open", "observed", "enforced"};

inline std::size_t count_tables(const boost::json::object& guard_state, std::string_view state) {
    return static_cast<std::size_t>(std::ranges::count_if(
        guard_state.at("tables").as_array(),
        [state](const auto& table) { return std::string_view(table.at("state").as_string()) == state; }));
}

/// Returns "1 open, 0 observed, 2 enforced".
inline std::string summarize_tables(const boost::json::object& guard_state) {
    std::string out;
    for (const auto state : table_states) {
        out += (out.empty() ? "" : ", ") + std::to_string(count_tables(guard_state, state)) + ' ';
        out += state;
    }
    return out;
}

/// Returns the state of one of `tables`, since when, by whom and why, as one line.
inline std::string describe_table(const boost::json::object& table) {
    const auto text_of = [&table](std::string_view name) {
        const auto* text = table.at(name).if_string();
        return text == nullptr ? std::string() : std::string(*text);
    };
    std::string out = text_of("table") + " is " + text_of("state");
    if (const auto since = text_of("since"); !since.empty()) out += " since " + since;
    if (const auto not_before = text_of("not_before"); !not_before.empty()) out += " (earliest " + not_before + ')';
    if (const auto principal = text_of("principal"); !principal.empty()) out += ", by " + principal;
    if (text_of("state") == "observed") out += ": changes are recorded and not refused";
    if (text_of("reason") == "unprotected") out += ": unprotect() was called";
    const auto& faults = table.at("faults").as_array();
    if (faults.empty()) return out;
    out += ": " + std::string(faults[0].as_string());
    if (faults.size() > 1) out += " (and more faults)";
    return out;
}

}  // namespace fencegate
