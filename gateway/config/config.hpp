#pragma once

#include <gateway/config/auth.hpp>
#include <gateway/config/authority.hpp>
#include <gateway/config/limits.hpp>

#include <lockcore/config.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fencegate {

struct http_config {
    std::string address = "127.0.0.1";  ///< Where to listen. find_exposure_fault() says what another address needs.
    std::uint16_t port = 8080;          ///< 0: any free port; it is logged.
    /// Threads, each with its own event loop, connections to Redis and share of the resources.
    unsigned threads = 1;
    std::size_t body_max_bytes = 1 << 20;  ///< Larger bodies: 413.
    /// Hosts and origins that requests may name, beside loopback and the address at which they arrive. At most 100.
    std::vector<authority> allowed_hosts;
    /// Origins whose pages may read answers (CORS), as browsers write them: `https://shop.example`. At most 100.
    std::vector<std::string> allowed_origins;
    /// Answers of at least this size are compressed for callers that accept gzip. 0: none.
    std::size_t gzip_min_bytes = 16 << 10;
    std::size_t header_max_bytes = 16 << 10;  ///< Larger heads: 431.
    std::size_t header_fields_max = 100;      ///< More header fields: 431.
    /// Maximum number of open connections. A further one replaces the one of its thread that has been idle longest, or
    /// is answered 503 if none is idle. The limit of open files may lower it (file_limit).
    std::size_t connections_max = 10'000;
    /// Maximum number of connections from one IPv4 address or one IPv6 /64 network; a further one is answered 429 if
    /// none is idle. 0: no limit.
    std::size_t connections_per_address_max = 1'000;
    /// Memory of all request bodies that are being read or handled, parsed values included. At least twice
    /// body_max_bytes.
    std::size_t bodies_max_bytes = 128 << 20;
    /// Memory of all answers that are being made or that callers have not read yet.
    std::size_t answers_max_bytes = 128 << 20;
    /// A connection without a request for this long is closed.
    std::chrono::milliseconds idle_timeout{60'000};
    /// Deadline of a request, in addition to its wait for a lease.
    std::chrono::milliseconds request_timeout{10'000};
    /// How long a gateway continues to serve after SIGTERM while it reports that it is not ready. 0: not at all.
    std::chrono::milliseconds shutdown_grace{2'000};
};

/// Returns HOST:PORT, the name of a gateway in the history.
std::string name_of_gateway(const http_config& cfg);

struct postgres_config {
    /// libpq connection string, `host=… dbname=… user=…`. May contain a password, so it is never logged. No default.
    std::string conninfo;
    /// PGPASSWORD, for a conninfo without a password; `serve` sets it. Never logged.
    std::string password;
    /// Worker threads, one connection each. Isolated writes have up to as many connections again, as do reads; one more
    /// connection looks up idempotency keys.
    unsigned connections = 4;
    /// Maximum number of rows of one read of a table, also if its limit is higher, and of one insert.
    std::size_t rows_max = 1'000;
    /// Requests that may wait for a worker, for writes, reads and the history each; more: 503 overloaded.
    std::size_t queue_max = 10'000;
    /// Longest time of one statement.
    std::chrono::milliseconds statement_timeout{5'000};
    /// Longest wait for a guard row or a row lock; then 409 write-conflict.
    std::chrono::milliseconds lock_timeout{2'000};
    /// Pause between two searches for what would let a change past the guard.
    std::chrono::milliseconds guard_check_interval{30'000};
};

struct writes_config {
    /// How long the outcome of a write with an Idempotency-Key is kept.
    std::chrono::milliseconds idempotency_ttl{std::chrono::hours(24)};
};

enum class on_full { refuse, drop };

struct audit_config {
    /// Lease events that may wait for PostgreSQL.
    std::size_t buffer_max = 100'000;
    /// While the buffer is full, `refuse` grants no leases (503), `drop` drops and counts events.
    on_full when_full = on_full::refuse;
    /// The private key in PEM (Ed25519) that signs digests of the history, from audit.digest_key_file. Empty: none are
    /// made. Never logged.
    std::string digest_key;
    /// Public keys in PEM, of the other gateways and of earlier keys, whose digests are continued. At most 16.
    std::vector<std::string> digest_public_keys;
    /// Pause between two digests.
    std::chrono::milliseconds digest_interval{60'000};
    /// Where all digests are appended, for a place outside of PostgreSQL. Empty: nowhere.
    std::string digest_file;
    /// Whether reads of the history and of changes are events (history_read).
    bool record_reads = false;
    friend bool operator==(const audit_config&, const audit_config&) = default;
};

struct history_config {
    unsigned keep_days = 0;  ///< Weekly partitions that are entirely older are dropped. 0: none.
};

struct lease_config {
    /// Pause between two searches for leaked leases on the nodes. 0: no search.
    std::chrono::milliseconds leak_scan_interval{60'000};
    /// Whether the file has `answer_bound_ms`; otherwise the gateway takes the cluster's.
    bool answer_bound_is_given = false;
    /// At least 32 bytes, from lease.signing_key_file or FENCEGATE_SIGNING_KEY; equal on all gateways, except while it
    /// is replaced. Never logged.
    std::string signing_key;
    /// Keys whose lease_ids count beside those of the signing key, from lease.verification_key_files. Up to 4, none by
    /// default, each of at least 32 bytes. Never logged.
    std::vector<std::string> verification_keys;
};

struct log_config {
    std::string level = "info";  ///< trace, debug, info, warn, error.
    bool json = true;            ///< One JSON object per line; false: plain text.
    /// Whether a crash and SIGQUIT leave a core dump. It would contain every secret in the memory of the process.
    bool core_dumps = false;
};

struct config {
    http_config http;
    lease_config lease;
    /// From `cell:` (0 to 65,535), `redis:` (nodes, node_timeout_ms, …) and `lease:` (default_ttl_ms, …).
    lockcore::config protocol;
    /// TLS of the connections to every node; also in protocol.nodes. Empty: none.
    std::optional<lockcore::node_tls> redis_tls;
    postgres_config postgres;
    writes_config writes;
    audit_config audit;
    history_config history;
    limits_config limits;
    log_config log;
    auth_config auth;
    /// The section http.tls; empty: HTTP without TLS. Not in http_config, of which each thread has a copy.
    std::optional<tls_config> tls;
    /// What works and should be changed, each "path: what and why": files with secrets that every user of this machine
    /// may access, too few nodes.
    std::vector<std::string> warnings;
};

/// The faults of a configuration, each "path: what is wrong".
using config_faults = std::vector<std::string>;

/// Whether an address at which other machines reach the gateway is a fault without TLS or credentials.
enum class exposure_rule { refuse, allow };

/// Returns what a gateway lacks that listens on an address other than loopback: TLS, credentials or both; empty if
/// it lacks nothing or listens on loopback.
std::optional<std::string> find_exposure_fault(const config& cfg);

/// Returns a warning if an attempt waits for nodes longer than their answers count; empty otherwise. `answer_bound` is
/// the one in use, which may be the cluster's.
std::optional<std::string> find_timeout_warning(const lockcore::config& protocol,
                                                std::chrono::milliseconds answer_bound);

/// Reads and checks a YAML file. Unknown keys are faults. All faults are reported at once.
///
/// Out: the configuration with defaults; if `faults` is not empty, the configuration is unusable.
config load_config(const std::filesystem::path& file, config_faults& faults,
                   exposure_rule rule = exposure_rule::refuse);

/// Returns the paths of the keys whose values differ and which a running gateway cannot change: everything but those of
/// adopt_reloadable(). Of files with secrets the content counts, of those of redis.tls the name.
std::vector<std::string> find_restart_only_changes(config running, config wanted);

/// Copies what a running gateway can change from `wanted` into `running`: auth, http.tls, http.allowed_hosts,
/// http.allowed_origins, the keys of lease ids, limits and log.level.
///
/// Out: the paths of those that differed.
std::vector<std::string> adopt_reloadable(config& running, config wanted);

}  // namespace fencegate
