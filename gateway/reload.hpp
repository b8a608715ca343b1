#pragma once

#include <gateway/audit/event_sink.hpp>
#include <gateway/config/config.hpp>
#include <gateway/http/transport/server.hpp>
#include <gateway/limits/limiter.hpp>
#include <gateway/metrics/registry.hpp>

#include <lockcore/hmac_sha256.hpp>

#include <filesystem>
#include <memory>

namespace fencegate {

/// Where a configuration comes from, and how it was checked.
struct config_source {
    std::filesystem::path file;
    exposure_rule exposure = exposure_rule::refuse;
};

/// Makes a running gateway use its configuration file again. The file, and the files that it names, are read and
/// checked first: if anything is at fault, nothing changes. Otherwise the keys of adopt_reloadable() take effect
/// together, and changed keys that need a restart are named. The log has the result, fencegate_config_reloads_total
/// counts it, and configuration_reloaded in the history has what has changed of rights and limits.
///
/// Threads:  one.
/// Lifetime: the server, the keys, the limiter, the registry and the sink outlive it.
class config_reload {
  public:
    /// In: `running` is in use; `tls` was made from it, null without http.tls.
    config_reload(config_source source, config running, std::shared_ptr<const http::tls_context> tls,
                  http::server& server, lockcore::hmac_sha256& lease_keys, limits::limiter& limiter,
                  metrics::registry& meter, audit::event_sink& events);

    /// Out: whether it took effect.
    bool run();

  private:
    /// Out:    false if a fault was found.
    /// Errors: std::exception; nothing has changed then.
    bool apply();

    config_source source_;
    config running_;
    std::shared_ptr<const http::tls_context> tls_;
    http::server& server_;
    lockcore::hmac_sha256& lease_keys_;
    limits::limiter& limiter_;
    metrics::registry& meter_;
    audit::event_sink& events_;
};

/// Makes the TLS of a configuration; null without http.tls. Errors: as tls_context::create.
result<std::shared_ptr<const http::tls_context>> make_tls(const config& cfg);

/// Logs the warnings of a configuration, and one for each certificate of http.tls that callers would refuse because of
/// its dates.
void log_warnings(const config& cfg);

}  // namespace fencegate
