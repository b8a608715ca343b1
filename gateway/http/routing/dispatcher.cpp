#include <gateway/http/routing/dispatcher.hpp>

#include <gateway/http/codec/problem.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/encoding.hpp>

#include <algorithm>

namespace fencegate::http {
namespace {

constexpr std::size_t request_id_max = 128;

bool is_zero(std::string_view text) {
    return text.find_first_not_of('0') == std::string_view::npos;
}

/// Returns the value of WWW-Authenticate (RFC 6750, 3). The details of tokens have neither quotation marks nor anything that
/// the caller sent.
std::string challenge_of(const authentication_failure& refused) {
    std::string out(challenge);
    if (refused.invalid_token) out += ", error=\"invalid_token\", error_description=\"" + refused.cause.detail + "\"";
    return out;
}

}  // namespace

dispatcher::dispatcher(std::shared_ptr<const router> routes, const auth_config& auth, const http_config& cfg,
                       limits::limiter& limiter, const dispatcher* replaced)
    : router_(std::move(routes)),
      authenticator_(auth, replaced == nullptr ? nullptr : &replaced->authenticator_),
      origin_rules_(cfg, auth),
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
    } else if (!found.error().unknown_key) {
        limiter_.note_failed_authentication(source.peer, credential, now);
    }
    return found;
}

dispatcher::plan dispatcher::prepare(request& r, sender source, std::chrono::steady_clock::time_point now) const {
    r.request_id = request_id_of(r);
    r.trace_id = trace_id_of(r.header("traceparent"));
    r.deadline = now + request_timeout_;
    r.peer = source.peer;

    plan out;
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
    if (found.target->required_scope) {
        auto caller = authenticate(source, now);
        if (!caller) {
            refuse(caller.error().cause);
            out.address_refused = caller.error().cause.code == errc::too_many_requests;
            if (!out.address_refused) out.answer.headers.emplace_back("WWW-Authenticate", challenge_of(caller.error()));
            return out;
        }
        out.caller = std::move(*caller);
        r.principal = out.caller->principal;
        r.rights = {out.caller, &out.caller->rights};
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
        const scope needed = *found.target->required_scope;
        const auto allowed =
            found.target->names_resources ? r.rights->require_for_some(needed) : r.rights->require(needed);
        if (!allowed) {
            refuse(allowed.error());
            return out;
        }
    }
    out.target = found.target;
    return out;
}

dispatcher::plan dispatcher::refuse_unreadable(const failure& fault, const sender& source, std::string_view request_id,
                                               std::chrono::steady_clock::time_point now) const {
    plan out;
    const auto admitted = source.counted ? result<void>() : limiter_.admit_address(source.peer, now, out.rate);
    out.answer = problem_response(admitted ? fault : admitted.error(), request_id);
    out.address_refused = !admitted;
    return out;
}

std::string request_id_of(const request& r) {
    const std::string_view sent = r.header("x-request-id");
    const bool valid = !sent.empty() && sent.size() <= request_id_max &&
                       std::ranges::all_of(sent, [](char c) { return c > ' ' && c <= '~'; });
    return valid ? std::string(sent) : runtime::random_hex128();
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
