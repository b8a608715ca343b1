#include <gateway/api/tables/preferences.hpp>

#include <gateway/http/codec/accept.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::array<std::pair<std::string_view, row_count>, 3> counts{{{"count=exact", row_count::exact},
                                                                        {"count=planned", row_count::planned},
                                                                        {"count=estimated", row_count::estimated}}};

bool apply_preference(const http::preference& wanted, preferences& out) {
    const std::string_view text = wanted.text;
    const auto* count = std::ranges::find(counts, text, [](const auto& row) { return row.first; });
    if (count != counts.end()) {
        out.count = count->second;
    } else if (text == "return=representation" || text == "return=minimal") {
        out.representation = text == "return=representation";
    } else if (text == "resolution=merge-duplicates") {
        out.resolution = conflict_resolution::merge;
    } else if (text == "resolution=ignore-duplicates") {
        out.resolution = conflict_resolution::ignore;
    } else if (text == "missing=default" || text == "missing=null") {
        out.missing_default = text == "missing=default";
    } else if (wanted.name == "max-affected" && number_of(wanted)) {
        out.max_affected = number_of(wanted);
    } else {
        return false;
    }
    return true;
}

}  // namespace

preferences parse_preferences(const http::request& r) {
    preferences out;
    std::set<std::string> seen;
    for (const auto& wanted : http::split_preferences(r.header_list("prefer"))) {
        // The first of several supported preferences with one name counts (RFC 7240, section 2).
        if (seen.contains(wanted.name) || !apply_preference(wanted, out)) continue;
        seen.insert(wanted.name);
        if (!out.applied.empty()) out.applied += ", ";
        out.applied += wanted.text;
    }
    return out;
}

}  // namespace fencegate::api
