#include <gateway/api/tables/preferences.hpp>
#include <gateway/http/codec/ascii.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

namespace fencegate::api {
namespace {

std::string_view unquoted(std::string_view text) {
    return text.size() > 1 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2) : text;
}

preference read_preference(std::string_view text) {
    text = http::trim(text.substr(0, text.find(';')));
    const auto equals = text.find('=');
    preference out;
    out.name = http::to_lower(http::trim(text.substr(0, equals)));
    out.text = out.name;
    if (equals != std::string_view::npos)
        out.text += "=" + http::to_lower(unquoted(http::trim(text.substr(equals + 1))));
    return out;
}

constexpr std::array<std::pair<std::string_view, row_count>, 3> counts{{{"count=exact", row_count::exact},
                                                                        {"count=planned", row_count::planned},
                                                                        {"count=estimated", row_count::estimated}}};

bool apply_preference(const preference& wanted, preferences& out) {
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

std::vector<preference> split_preferences(std::string_view list) {
    std::vector<preference> out;
    while (!list.empty()) {
        const auto comma = list.find(',');
        auto parsed = read_preference(list.substr(0, comma));
        list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
        if (!parsed.name.empty()) out.push_back(std::move(parsed));
    }
    return out;
}

std::optional<std::int64_t> number_of(const preference& wanted) {
    const auto text = std::string_view(wanted.text).substr(std::min(wanted.name.size() + 1, wanted.text.size()));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
}

preferences parse_preferences(const http::request& r) {
    preferences out;
    std::set<std::string> seen;
    for (const auto& wanted : split_preferences(r.header_list("prefer"))) {
        // The first of several supported preferences with one name counts (RFC 7240, section 2).
        if (seen.contains(wanted.name) || !apply_preference(wanted, out)) continue;
        seen.insert(wanted.name);
        if (!out.applied.empty()) out.applied += ", ";
        out.applied += wanted.text;
    }
    return out;
}

}  // namespace fencegate::api
