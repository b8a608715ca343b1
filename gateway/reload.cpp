#include <gateway/reload.hpp>

#include <gateway/config/config.hpp>
#include <gateway/config/sections.hpp>
#include <gateway/logging.hpp>

#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

namespace fencegate {
namespace {

std::string join(const std::vector<std::string>& paths) {
    std::string text;
    for (const auto& path : paths)
        text += (text.empty() ? "" : ", ") + path;
    return text;
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
                             metrics::registry& meter)
    : source_(std::move(source)),
      running_(std::move(running)),
      tls_(std::move(tls)),
      server_(server),
      lease_keys_(lease_keys),
      limiter_(limiter),
      meter_(meter) {}

bool config_reload::run() {
    bool applied = false;
    try {
        applied = apply();
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
    running_ = std::move(next);
    spdlog::info("configuration reloaded; changed: {}", changed.empty() ? "nothing" : join(changed));
    const std::vector<std::string> waiting = find_restart_only_changes(running_, wanted);
    if (!waiting.empty()) spdlog::warn("configuration: a restart is needed for: {}", join(waiting));
    log_warnings(wanted);
    return true;
}

}  // namespace fencegate
