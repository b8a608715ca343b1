#include <gateway/api/negotiation.hpp>

#include <gateway/http/codec/accept.hpp>
#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/query.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

namespace fencegate::api {
namespace {

constexpr std::string_view only_profile = "public";

failure not_acceptable(std::string header, std::string detail) {
    failure out = make_failure(errc::not_acceptable, detail);
    out.errors.push_back({std::move(header), std::move(detail)});
    return out;
}

std::string join_names(const std::vector<std::string_view>& media_types) {
    std::string out;
    for (std::size_t i = 0; i < media_types.size(); ++i) {
        if (i > 0) out += i + 1 == media_types.size() ? " or " : ", ";
        out += media_types[i];
    }
    return out;
}

bool changes_the_write(const http::preference& wanted) {
    constexpr std::array<std::string_view, 4> names{"max-affected", "tx", "timezone", "params"};
    return std::ranges::find(names, wanted.name) != names.end() && wanted.text != "tx=commit";
}

bool is_supported(const http::preference& wanted, const answer_options& options) {
    return std::ranges::any_of(
               options.preferences,
               [&](std::string_view supported) { return supported == wanted.name || supported == wanted.text; }) &&
           (wanted.name != "max-affected" || number_of(wanted));
}

/// Refuses conditional and range headers: ignoring them would do something else than the caller wants.
result<void> check_conditions(const http::request& r) {
    constexpr std::array<std::pair<std::string_view, const char*>, 5> conditions{
        {{"if-match", "If-Match"},
         {"if-none-match", "If-None-Match"},
         {"if-modified-since", "If-Modified-Since"},
         {"if-unmodified-since", "If-Unmodified-Since"},
         {"range", "Range"}}};
    for (const auto& [name, shown] : conditions) {
        if (r.has_header(name)) {
            return invalid_field(shown,
                                 "is not supported by calls that change something; put the condition of a write "
                                 "into its filter, and give the number of rows that it has to match");
        }
    }
    return {};
}

result<void> check_preferences(const http::request& r, const answer_options& options) {
    const auto header = r.header_list("prefer");
    const auto all_wanted = http::split_preferences(header);
    const auto handling = std::ranges::find(all_wanted, std::string_view("handling"), &http::preference::name);
    const bool strict = handling != all_wanted.end() && handling->text == "handling=strict";
    for (const auto& wanted : all_wanted) {
        if (wanted.name == "handling" || is_supported(wanted, options)) continue;
        if (strict) return invalid_field("Prefer", wanted.text + " is not supported at this address (handling=strict)");
        if (options.changes_something && changes_the_write(wanted)) {
            return invalid_field(
                "Prefer",
                wanted.text + " is not supported at this address, and without it the call would do something else");
        }
    }
    return {};
}

}  // namespace

result<void> negotiate(http::request& r, const answer_options& options) {
    const std::span<const std::string_view> offers(options.media_types);
    const auto preferred = http::preferred_type(r.header_list("accept"), offers);
    if (!preferred)
        return not_acceptable("Accept", "This address answers with " + join_names(options.media_types) + ".");
    r.media_type = *preferred;
    if (r.has_header("accept-profile") && r.header_list("accept-profile") != only_profile)
        return not_acceptable("Accept-Profile", "The only profile is public.");
    if (r.has_header("content-profile") && r.header_list("content-profile") != only_profile)
        return invalid_field("Content-Profile", "has to be public, the only profile");
    if (options.changes_something) {
        const auto conditions = check_conditions(r);
        if (!conditions) return conditions.error();
    }
    if (!options.has_parameters) {
        http::fault_list faults;
        const http::query_reader none(r.query, {}, faults);
        if (!faults.empty()) return std::move(faults).to_failure();
    }
    return check_preferences(r, options);
}

}  // namespace fencegate::api
