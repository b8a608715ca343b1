#include <gateway/api/tables/answer_form.hpp>

#include <gateway/http/codec/header_values.hpp>

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

/// Indexes of row_media_types().
enum media_type : std::size_t { json, array, object, csv };

std::string_view code_of(const failure& f) {
    const std::string_view pointer = f.errors.empty() ? std::string_view() : std::string_view(f.errors.front().pointer);
    switch (f.code) {
        case errc::fencing_required:
            return "FG428";
        case errc::stale_fencing_token:
            return "FG412";
        case errc::resource_not_covered:
        case errc::shared_lease:
            return "FG403";
        case errc::not_acceptable:
            return pointer == "Accept" ? "PGRST107" : "PGRST106";
        case errc::invalid_request:
            break;
        default:
            return {};
    }
    if (f.errors.empty()) return {};
    if (pointer == "Fencing-Cell") return {};
    if (pointer == "Prefer") return "PGRST122";
    if (pointer == "Content-Profile") return "PGRST106";
    return pointer.empty() || pointer.starts_with('/') ? "PGRST102" : "PGRST100";
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

const std::vector<std::string_view>& row_media_types() {
    static const std::vector<std::string_view> types{"application/json", "application/vnd.pgrst.array+json",
                                                     "application/vnd.pgrst.object+json", "text/csv"};
    return types;
}

result<answer_form> parse_answer_form(const http::request& r) {
    answer_form out;
    const auto type = row_media_types().at(r.media_type);
    if (r.media_type == csv) out.format = row_format::csv;
    if (r.media_type == object) out.single = true;
    if (r.media_type == array || r.media_type == object) {
        const auto nulls = http::media_parameter(r.header_list("accept"), type, "nulls");
        if (nulls && *nulls != "stripped") {
            failure f = make_failure(errc::not_acceptable, "The only value of the parameter nulls is stripped.");
            f.errors.push_back({"Accept", f.detail});
            return f;
        }
        if (nulls) out.format = row_format::json_without_nulls;
    }
    if (r.media_type == json) return out;
    out.content_type = type;
    if (out.format == row_format::json_without_nulls) out.content_type += "; nulls=stripped";
    out.content_type += "; charset=utf-8";
    return out;
}

failure not_one_row(std::int64_t rows, std::string_view outcome) {
    const auto count = std::to_string(rows) + " rows";
    failure out = make_failure(errc::not_acceptable, "The answer has to be one object, and the result contains " +
                                                         count + "; " + std::string(outcome) + ".");
    out.errors.push_back({"Accept", "asks for one object, and the result contains " + count});
    out.facts["code"] = "PGRST116";
    out.facts["details"] = "The result contains " + count;
    out.facts["rows_affected"] = rows;
    return out;
}

failure too_many_rows(std::int64_t most, std::int64_t rows) {
    failure out = invalid_field("Prefer", "max-affected=" + std::to_string(most) + " is exceeded by " +
                                              std::to_string(rows) + " rows; nothing was changed");
    out.facts["code"] = "PGRST124";
    out.facts["rows_affected"] = rows;
    return out;
}

void unwrap_single(std::string& json) {
    json.pop_back();
    json.erase(0, 1);
}

failure with_postgrest_code(failure f) {
    if (f.facts.contains("code") || f.facts.contains("sqlstate")) return f;
    const auto code = code_of(f);
    if (!code.empty()) f.facts["code"] = code;
    return f;
}

}  // namespace fencegate::api
