#include <gateway/config/reload_rules.hpp>

#include <functional>
#include <utility>

namespace fencegate {
namespace {

/// Collects the paths whose values differ. `get` returns a key's value in a configuration.
class comparison {
  public:
    comparison(const config& running, const config& wanted) : running_(running), wanted_(wanted) {}

    template <class Get>
    void compare(const char* path, Get get) {
        if (std::invoke(get, running_) != std::invoke(get, wanted_)) differing_.emplace_back(path);
    }
    /// Compares a key of a section, `member` of the result of `section`.
    template <class Section, class Member>
    void compare(const char* path, Section section, Member member) {
        compare(path, [=](const config& c) { return std::invoke(member, std::invoke(section, c)); });
    }
    std::vector<std::string> take() { return std::move(differing_); }

  private:
    const config& running_;
    const config& wanted_;
    std::vector<std::string> differing_;
};

}  // namespace

std::vector<std::string> find_restart_only_changes(const config& running, const config& wanted) {
    comparison keys(running, wanted);
    keys.compare("cell", &config::locks, &lockcore::config::cell);
    keys.compare("http.address", &config::http, &http_config::address);
    keys.compare("http.port", &config::http, &http_config::port);
    keys.compare("http.threads", &config::http, &http_config::threads);
    keys.compare("http.body_max_bytes", &config::http, &http_config::body_max_bytes);
    keys.compare("http.gzip_min_bytes", &config::http, &http_config::gzip_min_bytes);
    keys.compare("http.header_max_bytes", &config::http, &http_config::header_max_bytes);
    keys.compare("http.header_fields_max", &config::http, &http_config::header_fields_max);
    keys.compare("http.connections_max", &config::http, &http_config::connections_max);
    keys.compare("http.connections_per_address_max", &config::http, &http_config::connections_per_address_max);
    keys.compare("http.bodies_max_bytes", &config::http, &http_config::bodies_max_bytes);
    keys.compare("http.answers_max_bytes", &config::http, &http_config::answers_max_bytes);
    keys.compare("http.idle_timeout_ms", &config::http, &http_config::idle_timeout);
    keys.compare("http.request_timeout_ms", &config::http, &http_config::request_timeout);
    keys.compare("http.shutdown_grace_ms", &config::http, &http_config::shutdown_grace);

    keys.compare("lease.default_ttl_ms", &config::locks, &lockcore::config::default_ttl);
    keys.compare("lease.max_ttl_ms", &config::locks, &lockcore::config::max_ttl);
    // Without the key in the file the value depends on redis.node_timeout_ms, which is compared below.
    keys.compare("lease.answer_bound_ms", [](const config& c) {
        return c.lease.answer_bound_is_given ? c.locks.answer_bound : std::chrono::milliseconds{0};
    });
    keys.compare("lease.max_wait_ms", &config::locks, &lockcore::config::max_wait);
    keys.compare("lease.max_renewals", &config::locks, &lockcore::config::max_renewals);
    keys.compare("lease.max_hold_ms", &config::locks, &lockcore::config::max_hold);
    keys.compare("lease.handoff_max", &config::locks, &lockcore::config::handoff_max);
    keys.compare("lease.waiters_max", &config::locks, &lockcore::config::waiters_max);
    keys.compare("lease.leak_scan_interval_ms", &config::lease, &lease_config::leak_scan_interval);

    keys.compare("redis.nodes", [](const config& c) {
        auto nodes = c.locks.nodes;
        for (lockcore::node_address& node : nodes)
            node.tls = {};  // from redis.tls
        return nodes;
    });
    keys.compare("redis.tls", &config::redis_tls);
    keys.compare("redis.node_timeout_ms", &config::locks, &lockcore::config::node_timeout);
    keys.compare("redis.node_dead_after_ms", &config::locks, &lockcore::config::node_dead_after);
    keys.compare("redis.node_queue_max", &config::locks, &lockcore::config::node_queue_max);
    keys.compare("postgres.conninfo", &config::postgres, &postgres_config::conninfo);
    keys.compare("postgres.connections", &config::postgres, &postgres_config::connections);
    keys.compare("postgres.queue_max", &config::postgres, &postgres_config::queue_max);
    keys.compare("postgres.rows_max", &config::postgres, &postgres_config::rows_max);
    keys.compare("postgres.statement_timeout_ms", &config::postgres, &postgres_config::statement_timeout);
    keys.compare("postgres.lock_timeout_ms", &config::postgres, &postgres_config::lock_timeout);
    keys.compare("postgres.guard_check_interval_ms", &config::postgres, &postgres_config::guard_check_interval);
    keys.compare("writes.idempotency_ttl_ms", &config::writes, &writes_config::idempotency_ttl);
    keys.compare("audit.buffer_max", &config::audit, &audit_config::buffer_max);
    keys.compare("audit.on_full", &config::audit, &audit_config::when_full);
    keys.compare("history.keep_days", &config::history, &history_config::keep_days);
    keys.compare("log.core_dumps", &config::log, &log_config::core_dumps);
    keys.compare("log.json", &config::log, &log_config::json);
    return keys.take();
}

std::vector<std::string> adopt_reloadable(config& running, const config& wanted) {
    std::vector<std::string> differing;
    const auto adopt = [&differing](const char* path, auto& in_use, const auto& value) {
        if (in_use == value) return;
        in_use = value;
        differing.emplace_back(path);
    };
    adopt("auth.api_keys", running.auth.api_keys, wanted.auth.api_keys);
    adopt("auth.jwt", running.auth.jwt, wanted.auth.jwt);
    adopt("auth.client_certificates", running.auth.client_certificates, wanted.auth.client_certificates);
    adopt("http.tls", running.tls, wanted.tls);
    adopt("http.allowed_hosts", running.http.allowed_hosts, wanted.http.allowed_hosts);
    adopt("http.allowed_origins", running.http.allowed_origins, wanted.http.allowed_origins);
    adopt("lease.signing_key_file", running.lease.signing_key, wanted.lease.signing_key);
    adopt("lease.verification_key_files", running.lease.verification_keys, wanted.lease.verification_keys);
    adopt("limits", running.limits, wanted.limits);
    adopt("log.level", running.log.level, wanted.log.level);
    return differing;
}

}  // namespace fencegate
