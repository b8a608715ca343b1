#include <gateway/api/preferences.hpp>

#include <set>
#include <string_view>

namespace fencegate::api {
namespace {

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool apply(std::string_view wish, preferences& out) {
    if (wish == "return=representation" || wish == "return=minimal") {
        out.representation = wish == "return=representation";
    } else if (wish == "count=exact") {
        out.count = true;
    } else if (wish == "resolution=merge-duplicates") {
        out.resolution = conflict_resolution::merge;
    } else if (wish == "resolution=ignore-duplicates") {
        out.resolution = conflict_resolution::ignore;
    } else {
        return false;
    }
    return true;
}

}  // namespace

preferences parse_preferences(const http::request& r) {
    preferences out;
    std::set<std::string_view> seen;
    for (const auto& [name, value] : r.headers) {
        if (name != "prefer") continue;
        std::string_view rest = value;
        while (!rest.empty()) {
            const auto comma = rest.find(',');
            const auto wish = trimmed(rest.substr(0, comma));
            rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
            // Of those that it knows and that stand more than once the first counts (RFC 7240, section 2).
            const auto of = wish.substr(0, wish.find('='));
            if (seen.contains(of) || !apply(wish, out)) continue;
            seen.insert(of);
            if (!out.applied.empty()) out.applied += ", ";
            out.applied += wish;
        }
    }
    return out;
}

}  // namespace fencegate::api
