#pragma once

#include <gateway/config/authority.hpp>

#include <lockcore/config.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fencegate {

/// What a caller may do.
enum class scope {
    leases,       ///< Acquire, renew, read, release leases.
    writes,       ///< Guarded writes and reads.
    history,      ///< Read the history, resources and live leases.
    operate,      ///< Revoke leases, repair fences, read the nodes.
    bare_tokens,  ///< Write with a token of another issuer.
};

/// One who may call. The key itself is not kept, only its SHA-256.
struct api_key {
    std::string principal;   ///< Name in history and logs.
    std::string key_sha256;  ///< 64 lower-case hexadecimal digits.
    std::set<scope> scopes;
};

struct http_config {
    std::string address = "127.0.0.1";  ///< Where to listen. Without `auth.api_keys` only loopback is allowed.
    std::uint16_t port = 8080;          ///< 0: any free port; it is logged.
    unsigned threads =
        1;  ///< Threads, each with its own loop, connections to Redis and share of the resources. 1 to 64.
    std::size_t body_max_bytes = 1 << 20;  ///< Larger bodies: 413. 1 KiB to 64 MiB.
    std::vector<authority> allowed_hosts;  ///< Hosts that requests may name, beside loopback and the address that they
                                           ///< arrived at; their origins too. At most 100.
    std::size_t header_max_bytes = 16 << 10;  ///< Larger heads: 431. 1 KiB to 1 MiB.
    std::size_t header_fields_max = 100;      ///< More header fields: 431. 16 to 10,000.
    std::size_t connections_max = 10'000;  ///< More connections: the oldest idle one is closed for a new one, which is
                                           ///< answered 503 where none is idle. 1 to 1,000,000. What the process may
                                           ///< open bounds it too (file_limit).
    std::size_t connections_per_address_max = 1'000;  ///< The same of one IPv4 address, or one IPv6 network of 64 bits;
                                                      ///< 429. 0: no such limit. Up to 1,000,000.
    /// Of all request bodies that are read or handled, with what parsing makes of them. At least twice body_max_bytes.
    /// 1 MiB to 64 GiB.
    std::size_t bodies_max_bytes = 128 << 20;
    /// Of all answers that are being made or that callers have not taken yet. 1 MiB to 64 GiB.
    std::size_t answers_max_bytes = 128 << 20;
    std::chrono::milliseconds idle_timeout{
        60'000};  ///< A connection without a request for so long is closed. 1 s to 1 h.
    std::chrono::milliseconds request_timeout{
        10'000};  ///< Deadline of a request, on top of what it may wait for a lease. 100 ms to 10 min.
};

struct postgres_config {
    std::string conninfo;  ///< libpq connection string, `host=… dbname=… user=…`. May hold a password; never logged. No
                           ///< default.
    unsigned connections = 4;  ///< Worker threads, one connection each; at most as many beside them, for writes that
                               ///< call functions or wait for locks, again as many for reads, and one for idempotency
                               ///< keys. 1 to 64.
    std::size_t rows_max = 1'000;  ///< Most rows of one read of a table, whatever limit it asks for, and of one insert.
                                   ///< 1 to 100,000.
    std::size_t queue_max = 10'000;  ///< Requests waiting for a worker, of writes, of reads and of the history each;
                                     ///< more: 503 overloaded. 1 to 1,000,000.
    std::chrono::milliseconds statement_timeout{5'000};  ///< Longest time of one statement. 100 ms to 10 min.
    std::chrono::milliseconds lock_timeout{
        2'000};  ///< Longest wait for a guard row or a row lock; then 409 write-conflict. 10 ms to 1 min.
};

struct writes_config {
    std::chrono::milliseconds idempotency_ttl{
        std::chrono::hours(24)};  ///< How long the outcome of a write with an Idempotency-Key is kept. 1 s to 30 days.
};

enum class on_full { refuse, drop };

struct audit_config {
    std::size_t buffer_max = 100'000;     ///< Lease events waiting for PostgreSQL. 1,000 to 10,000,000.
    on_full when_full = on_full::refuse;  ///< refuse: no new grants (503) while the buffer is full. drop: events are
                                          ///< dropped and counted.
};

struct history_config {
    unsigned keep_days = 0;  ///< Weekly partitions that are wholly older are dropped. 0: none; else 7 to 36,500.
};

struct lease_config {
    std::chrono::milliseconds leak_scan_interval{
        60'000};              ///< Pause between two searches for leaked leases on the nodes. 0: none. Up to 1 day.
    std::string signing_key;  ///< At least 32 bytes, from lease.signing_key_file or FENCEGATE_SIGNING_KEY. Equal on all
                              ///< gateways. Never logged.
};

struct log_config {
    std::string level = "info";  ///< trace, debug, info, warn, error.
    bool json = true;            ///< One JSON object a line; false: for people.
};

struct config {
    http_config http;
    lease_config lease;
    lockcore::config
        locks;  ///< From `redis:` (nodes, node_timeout_ms, node_dead_after_ms) and `lease:` (default_ttl_ms, …).
    postgres_config postgres;
    writes_config writes;
    audit_config audit;
    history_config history;
    log_config log;
    std::vector<api_key> api_keys;  ///< Empty: every caller is the principal `dev` with all scopes; only on loopback.
};

/// The faults of a configuration, each "path: what is wrong"; never empty when returned.
using config_faults = std::vector<std::string>;

/// Reads and checks a YAML file. Unknown keys are faults. All faults are reported at once.
///
/// Out: the configuration with defaults filled in, or `faults` filled and the returned value unusable.
config load_config(const std::filesystem::path& file, config_faults& faults);

}  // namespace fencegate
