#include <gateway/http/routing/dispatcher.hpp>

#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/runtime/random.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/encoding.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <stdexcept>

namespace fencegate::http {
namespace {

/// Maximum number of segments of a path; no template has more, so a longer path is not found.
constexpr std::size_t segments_max = 8;

struct split_path {
    std::array<std::string_view, segments_max> parts;
    std::size_t count = 0;
    bool has_no_route = false;  ///< It has too many segments, or does not begin with a slash.
};

split_path split_segments(std::string_view path) {
    split_path out;
    if (path.empty() || path.front() != '/') {
        out.has_no_route = true;
        return out;
    }
    path.remove_prefix(1);
    while (true) {
        if (out.count == segments_max) {
            out.has_no_route = true;
            return out;
        }
        const std::size_t slash = path.find('/');
        out.parts[out.count++] = path.substr(0, slash);
        if (slash == std::string_view::npos) return out;
        path.remove_prefix(slash + 1);
    }
}

void add_allowed(std::string& allow, method verb) {
    if (!allow.empty()) allow += ", ";
    allow += to_string(verb);
    if (verb == method::get) allow += ", HEAD";
}

constexpr std::size_t request_id_max = 128;

bool is_zero(std::string_view text) {
    return text.find_first_not_of('0') == std::string_view::npos;
}

/// Returns the value of WWW-Authenticate (RFC 6750, 3). The details of tokens have neither quotation marks nor anything
/// that the caller sent.
std::string challenge_of(const authentication_failure& refused) {
    std::string out(challenge);
    if (refused.invalid_token) out += ", error=\"invalid_token\", error_description=\"" + refused.cause.detail + "\"";
    return out;
}

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

bool changes_the_write(const preference& wanted) {
    constexpr std::array<std::string_view, 4> names{"max-affected", "tx", "timezone", "params"};
    return std::ranges::find(names, wanted.name) != names.end() && wanted.text != "tx=commit";
}

bool is_supported(const preference& wanted, const answer_options& options) {
    return std::ranges::any_of(
               options.preferences,
               [&](std::string_view supported) { return supported == wanted.name || supported == wanted.text; }) &&
           (wanted.name != "max-affected" || number_of(wanted));
}

/// Refuses conditional and range headers: ignoring them would do something else than the caller wants.
result<void> check_conditions(const request& r) {
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

result<void> check_preferences(const request& r, const answer_options& options) {
    const auto header = r.header_list("prefer");
    const auto all_wanted = split_preferences(header);
    const auto handling = std::ranges::find(all_wanted, std::string_view("handling"), &preference::name);
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

/// Checks the header Fencing-Cell, by which a caller names the cell for which a request is, so that a router that asks
/// by cell is not misled.
result<void> check_cell(const request& r, lockcore::cell_id own) {
    if (!r.has_header("fencing-cell")) return {};
    const std::string text = r.header_list("fencing-cell");  // two of them are no number
    lockcore::cell_id named = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), named);
    if (error != std::errc{} || end != text.data() + text.size())
        return invalid_field("Fencing-Cell", "has to be the number of a cell, 0 to 65535");
    if (named != own) return other_cell_failure("The header Fencing-Cell", named, own);
    return {};
}

}  // namespace

router::router(std::vector<route> routes) : routes_(std::move(routes)) {
    for (const route& r : routes_) {
        const split_path parts = split_segments(r.path);
        if (parts.has_no_route) throw std::logic_error("route with an invalid path: " + r.path);
        auto& segments = templates_.emplace_back();
        for (const std::string_view part : std::span(parts.parts).first(parts.count)) {
            const bool placeholder = part.size() > 2 && part.front() == '{' && part.back() == '}';
            segments.push_back({std::string(part), placeholder});
        }
    }
    for (std::size_t i = 0; i < routes_.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (routes_[i].verb == routes_[j].verb && routes_[i].path == routes_[j].path) {
                throw std::logic_error("two routes with the same method and path: " + routes_[i].path);
            }
        }
    }
}

router::match router::find(method verb, std::string_view path) const {
    match out;
    const split_path raw = split_segments(path);
    std::array<std::string, segments_max> parts;
    for (std::size_t i = 0; i < raw.count; ++i) {
        auto decoded = runtime::percent_decode(raw.parts[i]);
        if (!decoded) {
            out.kind = outcome::malformed;
            return out;
        }
        parts[i] = std::move(*decoded);
    }
    if (raw.has_no_route) return out;

    const method wanted = verb == method::head ? method::get : verb;
    for (std::size_t r = 0; r < routes_.size(); ++r) {
        const auto& segments = templates_[r];
        if (segments.size() != raw.count) continue;
        bool fits = true;
        for (std::size_t i = 0; i < segments.size() && fits; ++i) {
            fits = segments[i].placeholder ? !parts[i].empty() : segments[i].text == parts[i];
        }
        if (!fits) continue;
        if (routes_[r].verb != wanted) {
            add_allowed(out.allow, routes_[r].verb);
            continue;
        }
        out.kind = outcome::found;
        out.target = &routes_[r];
        out.allow.clear();
        for (std::size_t i = 0; i < segments.size(); ++i) {
            if (segments[i].placeholder) out.parameters.push_back(std::move(parts[i]));
        }
        return out;
    }
    if (out.allow.empty()) return out;
    out.kind = verb == method::options ? outcome::options : outcome::method_not_allowed;
    out.allow += ", OPTIONS";
    return out;
}

dispatcher::dispatcher(std::shared_ptr<const router> routes, const auth_config& auth, const http_config& cfg,
                       limits::limiter& limiter, const dispatcher* replaced)
    : router_(std::move(routes)),
      authenticator_(auth, replaced == nullptr ? nullptr : &replaced->authenticator_),
      origin_rules_(cfg, auth),
      gateway_(name_of_gateway(cfg)),
      request_timeout_(cfg.request_timeout),
      limiter_(limiter) {}

authenticator::caller_result dispatcher::authenticate(const sender& source,
                                                      std::chrono::steady_clock::time_point now) const {
    const auto identify = [&] {
        return authenticator_.identify(source.authorization, source.x_api_key, source.certificate,
                                       std::chrono::system_clock::now());
    };
    // Without the scheme and its spaces, so that a credential is the same however it is sent.
    std::string_view credential = source.x_api_key;
    if (!source.authorization.empty()) credential = bearer_of(source.authorization);
    const bool has_none = source.authorization.empty() && source.x_api_key.empty();
    if (has_none || source.counted) return identify();
    const auto allowed = limiter_.admit_credential(source.peer, credential, now);
    if (!allowed) return authentication_failure{allowed.error()};
    auto found = identify();
    // While an issuer's new keys are not known here, honest callers fail with their tokens.
    if (found) {
        limiter_.note_valid_credential(source.peer, credential, (*found)->principal);
    } else if (!found.error().keys_outdated) {
        limiter_.note_failed_authentication(source.peer, credential, now);
    }
    return found;
}

dispatcher::decision dispatcher::prepare(request& r, const sender& source,
                                         std::chrono::steady_clock::time_point now) const {
    decision out = decide(r, source, now);
    if (out.caller)
        r.origin = r.trace_id + describe_origin(r.request_id, canonical_address(source.peer.to_string()), gateway_,
                                                out.caller->credential_name);
    return out;
}

dispatcher::decision dispatcher::decide(request& r, sender source, std::chrono::steady_clock::time_point now) const {
    r.request_id = request_id_of(r);
    r.trace_id = trace_id_of(r.header("traceparent"));
    r.deadline = now + request_timeout_;
    r.peer = source.peer;

    decision out;
    const auto refuse = [&](const failure& f) { out.answer = problem_response(f, r.request_id); };
    router::match found = router_->find(r.verb, r.path);
    const bool is_probe = found.kind == router::outcome::found && found.target->is_probe;
    const auto counted_as = found.kind == router::outcome::found && found.target->uses_lease
                                ? limits::request_class::of_lease
                                : limits::request_class::other;
    if (!is_probe && !source.counted) {
        if (const auto admitted = limiter_.admit_address(source.peer, now, out.rate, counted_as); !admitted) {
            refuse(admitted.error());
            out.address_refused = true;
            return out;
        }
    }
    if (const auto origin_check = origin_rules_.check(r, source.host, source.local_address); !origin_check) {
        refuse(origin_check.error());
        return out;
    }
    if (origin_rules_.is_from_allowed_page(r, source.host)) source.certificate = nullptr;
    switch (found.kind) {
        case router::outcome::found:
            break;
        case router::outcome::not_found:
            refuse(make_failure(
                errc::not_found,
                "There is nothing at this address; /openapi.json describes every address, and /console is the web "
                "console."));
            return out;
        case router::outcome::malformed:
            refuse(make_failure(errc::invalid_request, "The path has a percent sign without two hexadecimal digits."));
            return out;
        case router::outcome::method_not_allowed:
            refuse(make_failure(errc::method_not_allowed,
                                "This address does not have this method; it has " + found.allow + "."));
            out.answer.headers.emplace_back("Allow", std::move(found.allow));
            return out;
        case router::outcome::options:
            out.answer.status = 204;
            origin_rules_.cors().answer_preflight(r, found.allow, out.answer);
            out.answer.headers.emplace_back("Allow", std::move(found.allow));
            return out;
    }
    out.route_path = found.target->path;
    r.path_parameters = std::move(found.parameters);
    if (found.target->required_scope || found.target->about_caller) {
        auto caller = authenticate(source, now);
        if (!caller) {
            if (found.target->about_caller && source.authorization.empty() && source.x_api_key.empty() &&
                source.certificate == nullptr) {
                out.target = found.target;
                return out;
            }
            refuse(caller.error().cause);
            out.address_refused = caller.error().cause.code == errc::too_many_requests;
            if (!out.address_refused) out.answer.headers.emplace_back("WWW-Authenticate", challenge_of(caller.error()));
            return out;
        }
        out.caller = std::move(*caller);
        r.principal = out.caller->principal;
        r.rights = {out.caller, &out.caller->rights};  // a pointer to the rights that keeps the caller alive
        r.rights_until = out.caller->rights.valid_until();
        if (source.certificate != nullptr && source.authorization.empty() && source.x_api_key.empty())
            r.rights_until = source.certificate->valid_until;
        r.caller = limiter_.caller_of(r.principal);
        if (!source.counted) {
            if (const auto admitted = limiter_.admit_principal(*r.caller, now, out.rate, counted_as); !admitted) {
                refuse(admitted.error());
                return out;
            }
        }
        if (found.target->required_scope) {
            const scope needed = *found.target->required_scope;
            const auto allowed =
                found.target->names_resources ? r.rights->require_for_some(needed) : r.rights->require(needed);
            if (!allowed) {
                refuse(allowed.error());
                return out;
            }
        }
    }
    out.target = found.target;
    return out;
}

dispatcher::decision dispatcher::refuse_unreadable(const failure& fault, const sender& source,
                                                   std::string_view request_id,
                                                   std::chrono::steady_clock::time_point now) const {
    decision out;
    const auto admitted = source.counted ? result<void>() : limiter_.admit_address(source.peer, now, out.rate);
    out.answer = problem_response(admitted ? fault : admitted.error(), request_id);
    out.address_refused = !admitted;
    return out;
}

result<void> negotiate(request& r, const route& target) {
    if (target.own_cell) {
        const auto own = check_cell(r, *target.own_cell);
        if (!own) return own.error();
    }
    if (!target.options) return {};
    const answer_options& options = *target.options;
    const std::span<const std::string_view> offers(options.media_types);
    const auto preferred = preferred_type(r.header_list("accept"), offers);
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
        fault_list faults;
        const query_reader none(r.query, {}, faults);
        if (!faults.empty()) return std::move(faults).to_failure();
    }
    return check_preferences(r, options);
}

std::string request_id_of(const request& r) {
    const std::string_view sent = r.header("x-request-id");
    const bool valid = !sent.empty() && sent.size() <= request_id_max &&
                       std::ranges::all_of(sent, [](char c) { return c > ' ' && c <= '~'; });
    return valid ? std::string(sent) : runtime::random_hex128();
}

std::string describe_origin(std::string_view request_id, std::string_view address, std::string_view gateway,
                            std::string_view credential) {
    std::string out;
    object_writer members(out);
    members.text("request_id", request_id).text("address", address).text("gateway", gateway);
    if (!credential.empty()) members.text("credential", credential);
    members.end();
    return out;
}

std::string_view trace_id_of(std::string_view traceparent) {
    // version "-" trace-id "-" parent-id "-" flags; a later version may append more after another dash.
    constexpr std::size_t size_of_version_0 = 55;
    if (traceparent.size() < size_of_version_0) return {};
    const std::string_view version = traceparent.substr(0, 2);
    const std::string_view trace_id = traceparent.substr(3, 32);
    const std::string_view parent_id = traceparent.substr(36, 16);
    const std::string_view flags = traceparent.substr(53, 2);
    const bool dashes = traceparent[2] == '-' && traceparent[35] == '-' && traceparent[52] == '-';
    const bool hex = lockcore::is_lower_hex(version) && lockcore::is_lower_hex(trace_id) &&
                     lockcore::is_lower_hex(parent_id) && lockcore::is_lower_hex(flags);
    const bool length =
        traceparent.size() == size_of_version_0 || (version != "00" && traceparent[size_of_version_0] == '-');
    if (!dashes || !hex || !length || version == "ff" || is_zero(trace_id) || is_zero(parent_id)) return {};
    return trace_id;
}

}  // namespace fencegate::http
