#include <gateway/reload.hpp>

#include <gateway/config/config.hpp>
#include <gateway/config/sections.hpp>
#include <gateway/logging.hpp>

#include <spdlog/spdlog.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencegate {
namespace {

constexpr std::size_t rules_bytes_max = 32 * 1024;

std::string join(const std::vector<std::string>& paths) {
    std::string text;
    for (const auto& path : paths)
        text += (text.empty() ? "" : ", ") + path;
    return text;
}

namespace json = boost::json;

/// The rights of each credential and the limits, by their names.
using access_rules = std::map<std::string, json::value>;

json::array names_of(const std::set<scope>& scopes) {
    json::array out;
    for (const scope each : scopes)
        out.emplace_back(http::to_string(each));
    return out;
}

json::object describe_rights(const std::string& principal, const rights_config& given) {
    json::object out{{"principal", principal}, {"scopes", names_of(given.scopes)}};
    json::array prefixes;
    for (const auto& each : given.prefixes)
        prefixes.push_back({{"resource_prefix", each.resource_prefix}, {"scopes", names_of(each.scopes)}});
    if (!prefixes.empty()) out["prefixes"] = std::move(prefixes);
    if (given.exposed) out["exposed"] = json::array(given.exposed->begin(), given.exposed->end());
    if (!given.database_role.empty()) out["database_role"] = given.database_role;
    return out;
}

json::object describe_limits(const principal_limits& limits) {
    return {{"requests_per_second", limits.requests.per_second},
            {"requests_burst", limits.requests.burst},
            {"leases_max", limits.leases_max},
            {"waiters_max", limits.waiters_max},
            {"streams_max", limits.streams_max}};
}

const char* name_of(certificate_config::field field) {
    switch (field) {
        case certificate_config::field::subject:
            return "subject";
        case certificate_config::field::dns:
            return "dns";
        case certificate_config::field::uri:
            return "uri";
    }
    return "";
}

access_rules describe_access(const config& cfg) {
    access_rules out;
    for (const auto& key : cfg.auth.api_keys)
        out[http::name_of_key(key.key_sha256)] = describe_rights(key.principal, key.rights);
    // Of two rules for the same field and value the first one counts.
    for (const auto& rule : cfg.auth.client_certificates)
        out.emplace(http::name_of_certificate(rule.value) + " (" + name_of(rule.compared) + ")",
                    describe_rights(rule.principal, rule.rights));
    if (cfg.auth.jwt)
        out["auth.jwt"] = {{"issuer", cfg.auth.jwt->issuer},
                           {"audiences", json::array(cfg.auth.jwt->audiences.begin(), cfg.auth.jwt->audiences.end())},
                           {"principal_claim", cfg.auth.jwt->principal_claim},
                           {"scopes_claim", cfg.auth.jwt->scopes_claim},
                           {"prefixes_claim", cfg.auth.jwt->prefixes_claim},
                           {"exposed_claim", cfg.auth.jwt->exposed_claim},
                           {"database_role_claim", cfg.auth.jwt->database_role_claim}};
    const auto& address = cfg.limits.address;
    out["limits.address"] = {{"requests_per_second", address.requests.per_second},
                             {"requests_burst", address.requests.burst},
                             {"failed_authentications_per_minute", address.failed_authentications_per_minute}};
    out["limits.principal"] = describe_limits(cfg.limits.principal);
    for (const auto& [principal, limits] : cfg.limits.principals)
        out["limits.principals." + principal] = describe_limits(limits);
    return out;
}

/// Adds configuration_reloaded to the history: which keys have changed, and of which rules what they were and are.
void record(audit::event_sink& events, const std::vector<std::string>& changed, const access_rules& before,
            const access_rules& after) {
    json::array rules;
    std::size_t bytes = 0, left_out = 0;
    access_rules names = before;
    names.insert(after.begin(), after.end());
    for (const auto& [name, ignored] : names) {
        const auto find = [&name](const access_rules& in) {
            const auto found = in.find(name);
            return found == in.end() ? json::value() : found->second;
        };
        json::object rule{{"name", name}, {"was", find(before)}, {"now", find(after)}};
        if (rule["was"] == rule["now"]) continue;
        bytes += json::serialize(rule).size();
        if (bytes > rules_bytes_max)
            ++left_out;
        else
            rules.push_back(std::move(rule));
    }
    json::object detail{{"changed", json::array(changed.begin(), changed.end())}, {"rules", std::move(rules)}};
    if (left_out > 0) detail["rules_left_out"] = left_out;
    history_item item;
    item.event = "configuration_reloaded";
    item.at = std::chrono::system_clock::now();
    item.detail = json::serialize(detail);
    events.add(std::move(item));
}

}  // namespace

result<std::shared_ptr<const http::tls_context>> make_tls(const config& cfg) {
    if (cfg.tls) return http::tls_context::create(*cfg.tls);
    return std::shared_ptr<const http::tls_context>();
}

void log_warnings(const config& cfg) {
    for (const auto& warning : cfg.warnings)
        spdlog::warn("{}", warning);
    for (const auto& fault : find_expired_certificates(cfg.tls))
        spdlog::warn("{}", fault);
}

config_reload::config_reload(config_source source, config running, std::shared_ptr<const http::tls_context> tls,
                             http::server& server, lockcore::hmac_sha256& lease_keys, limits::limiter& limiter,
                             metrics::registry& meter, audit::event_sink& events)
    : source_(std::move(source)),
      running_(std::move(running)),
      tls_(std::move(tls)),
      server_(server),
      lease_keys_(lease_keys),
      limiter_(limiter),
      meter_(meter),
      events_(events) {}

bool config_reload::run() {
    bool applied = false;
    try {
        applied = apply();
        meter_.set_certificates(find_certificate_ends(running_.tls, running_.redis_tls, running_.postgres.conninfo));
    } catch (const std::exception& e) {
        spdlog::error("configuration not reloaded: {}", e.what());
    }
    meter_.count_reload(applied);
    return applied;
}

bool config_reload::apply() {
    config_faults faults;
    const config wanted = load_config(source_.file, faults, source_.exposure);
    config next = running_;
    const std::vector<std::string> changed = adopt_reloadable(next, wanted);
    // The file may be right for its own address and not for the one in use.
    const auto exposed = find_exposure_fault(next);
    if (faults.empty() && exposed && source_.exposure == exposure_rule::refuse)
        faults.push_back("http.address: " + *exposed + "; another address takes effect at a restart");
    // A file that lost its section auth, or was cut off, must not open the gateway.
    if (faults.empty() && next.auth.is_keyless() && !running_.auth.is_keyless())
        faults.push_back(
            "auth: has no credentials any more, so that every caller might do everything; this takes a restart");
    auto tls = tls_;
    if (faults.empty() && next.tls != running_.tls) {
        const auto made = make_tls(next);
        if (made) tls = *made;
        if (!made) faults.push_back(made.error().detail);
    }
    if (faults.empty()) {
        const auto replaced = server_.reload(next.auth, next.http, tls);
        if (!replaced) faults.push_back(replaced.error().detail);
    }
    for (const auto& fault : faults)
        spdlog::error("configuration not reloaded, nothing has changed: {}", fault);
    if (!faults.empty()) return false;

    limiter_.set_limits(next.limits, next.auth.is_keyless());
    lease_keys_.set_keys(next.lease.signing_key, next.lease.verification_keys);
    set_log_level(next.log.level);
    tls_ = std::move(tls);
    record(events_, changed, describe_access(running_), describe_access(next));
    running_ = std::move(next);
    spdlog::info("configuration reloaded; changed: {}", changed.empty() ? "nothing" : join(changed));
    const std::vector<std::string> waiting = find_restart_only_changes(running_, wanted);
    if (!waiting.empty()) spdlog::warn("configuration: a restart is needed for: {}", join(waiting));
    log_warnings(wanted);
    return true;
}

}  // namespace fencegate
