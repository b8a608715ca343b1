#include <gateway/http/codec/header_values.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace fencegate::http {
namespace {

/// Removes the text up to `separator` from the front of `rest` and returns it, without the separator.
std::string_view take(std::string_view& rest, char separator) {
    // A separator inside a quoted string does not count.
    std::size_t at = 0;
    for (bool quoted = false; at < rest.size() && (quoted || rest[at] != separator); ++at) {
        if (rest[at] == '"') quoted = !quoted;
        if (quoted && rest[at] == '\\') ++at;
    }
    if (at >= rest.size()) at = std::string_view::npos;
    const std::string_view head = rest.substr(0, at);
    rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
    return trim(head);
}

double quality(std::string_view parameters) {
    while (!parameters.empty()) {
        const std::string_view parameter = take(parameters, ';');
        if (parameter.size() < 3 || to_lower(parameter[0]) != 'q' || parameter[1] != '=') continue;
        double q = 0;
        const auto [end, error] = std::from_chars(parameter.data() + 2, parameter.data() + parameter.size(), q);
        return error == std::errc{} && end == parameter.data() + parameter.size() ? std::clamp(q, 0.0, 1.0) : 0.0;
    }
    return 1;
}

/// Returns how exactly a media range matches a type: 0 not at all, 1 as `*/*`, 2 as `type/*`, 3 as the full type.
int exactness(std::string_view range, std::string_view type) {
    if (equals_ignoring_case(range, type)) return 3;
    if (range == "*/*") return 1;
    if (range.size() > 2 && range.ends_with("/*") && type.size() >= range.size() &&
        equals_ignoring_case(range.substr(0, range.size() - 1), type.substr(0, range.size() - 1))) {
        return 2;
    }
    return 0;
}

std::string_view remove_quotes(std::string_view text) {
    return text.size() > 1 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2) : text;
}

preference read_preference(std::string_view text) {
    text = trim(text.substr(0, text.find(';')));
    const auto equals = text.find('=');
    preference out;
    out.name = to_lower(trim(text.substr(0, equals)));
    out.text = out.name;
    if (equals != std::string_view::npos) out.text += "=" + to_lower(remove_quotes(trim(text.substr(equals + 1))));
    return out;
}

}  // namespace

std::optional<std::size_t> preferred_type(std::string_view accept, std::span<const std::string_view> offers) {
    if (trim(accept).empty()) return 0;
    std::optional<std::size_t> best;
    double best_quality = 0;
    for (std::size_t i = 0; i < offers.size(); ++i) {
        int most_exact = 0;
        double wanted = 0;
        for (std::string_view rest = accept; !rest.empty();) {
            std::string_view parameters = take(rest, ',');
            const std::string_view range = take(parameters, ';');
            const int exact = exactness(range, offers[i]);
            if (exact <= most_exact) continue;
            most_exact = exact;
            wanted = quality(parameters);
        }
        if (wanted > best_quality) {
            best_quality = wanted;
            best = i;
        }
    }
    return best;
}

bool prefers_gzip(std::string_view accept_encoding) {
    std::optional<double> gzip, identity, any;
    for (std::string_view rest = accept_encoding; !rest.empty();) {
        std::string_view parameters = take(rest, ',');
        const std::string_view coding = take(parameters, ';');
        const double q = quality(parameters);
        if (equals_ignoring_case(coding, "gzip") || equals_ignoring_case(coding, "x-gzip")) gzip = q;
        if (equals_ignoring_case(coding, "identity")) identity = q;
        if (coding == "*") any = q;
    }
    const double wanted = gzip.value_or(any.value_or(0));
    return wanted > 0 && wanted >= identity.value_or(0);
}

std::optional<std::string> media_parameter(std::string_view accept, std::string_view type, std::string_view name) {
    while (!accept.empty()) {
        std::string_view parameters = take(accept, ',');
        if (!equals_ignoring_case(take(parameters, ';'), type)) continue;
        while (!parameters.empty()) {
            std::string_view value = take(parameters, ';');
            if (!equals_ignoring_case(take(value, '='), name)) continue;
            std::string out;
            for (const char c : value) {
                if (c != '"') out.push_back(to_lower(c));
            }
            return out;
        }
    }
    return std::nullopt;
}

bool is_media_type(std::string_view content_type, std::string_view type) {
    return equals_ignoring_case(take(content_type, ';'), type);
}

std::string find_foreign_charset(std::string_view content_type) {
    std::string out;
    take(content_type, ';');
    while (!content_type.empty()) {
        std::string_view value = take(content_type, ';');
        if (!equals_ignoring_case(take(value, '='), "charset")) continue;
        if (value.size() >= 2 && value.starts_with('"') && value.ends_with('"'))
            value = value.substr(1, value.size() - 2);
        const bool readable = std::ranges::any_of(std::array{"utf-8", "utf8", "us-ascii"},
                                                  [value](auto name) { return equals_ignoring_case(value, name); });
        if (!readable) out.append(out.empty() ? "" : ", ").append(value.empty() ? "\"\"" : value);
    }
    return out;
}

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

}  // namespace fencegate::http
