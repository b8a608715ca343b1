#include <gateway/app.hpp>

#include <gateway/api/routes.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/waiting_writes.hpp>
#include <gateway/audit/denial_recorder.hpp>
#include <gateway/audit/digest_maker.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/audit/expiry_watch.hpp>
#include <gateway/audit/history_feed.hpp>
#include <gateway/audit/history_keeper.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/config/authority.hpp>
#include <gateway/config/file_limit.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/transport/server.hpp>
#include <gateway/limits/held_leases.hpp>
#include <gateway/limits/limiter.hpp>
#include <gateway/logging.hpp>
#include <gateway/metrics/registry.hpp>
#include <gateway/metrics/watches.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/reload.hpp>
#include <gateway/runtime/background.hpp>
#include <gateway/service_notifier.hpp>

#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_future.hpp>

#include <sys/prctl.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fencegate {
namespace {

using namespace std::chrono_literals;

/// How long the stop waits: for the requests under way, for the event buffer to be written to the history, and for the
/// jobs of PostgreSQL that are left then.
constexpr auto requests_timeout = 5s;
constexpr auto events_timeout = 5s;
constexpr auto jobs_timeout = 5s;
/// How long a call of the register of epochs may take.
constexpr auto register_timeout = 5s;

/// The register of epochs in PostgreSQL.
class postgres_register final : public lockcore::epoch_register {
  public:
    explicit postgres_register(pg::database& database) : database_(database) {}

    boost::asio::awaitable<lockcore::result<lockcore::node_record>> find(std::string node_name) override {
        auto job = [name = std::move(node_name)](pg::session& session) { return pg::find_node_record(session, name); };
        auto found = co_await database_.run(pg::worker_choice::any_worker(), deadline(), std::move(job));
        if (found) co_return *found;
        co_return to_register_failure(found.error());
    }

    boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> draw(lockcore::epoch_request request) override {
        auto job = [wanted = std::move(request)](pg::session& session) { return pg::draw_epoch(session, wanted); };
        auto drawn = co_await database_.run(pg::worker_choice::any_worker(), deadline(), std::move(job));
        if (drawn) co_return *drawn;
        co_return to_register_failure(drawn.error());
    }

    boost::asio::awaitable<lockcore::result<void>> note_unsynced(std::string node_name) override {
        auto job = [name = std::move(node_name)](pg::session& session) { pg::note_node_unsynced(session, name); };
        auto noted = co_await database_.run(pg::worker_choice::any_worker(), deadline(), std::move(job));
        if (noted) co_return lockcore::result<void>();
        co_return to_register_failure(noted.error());
    }

  private:
    static std::chrono::steady_clock::time_point deadline() {
        return std::chrono::steady_clock::now() + register_timeout;
    }
    /// Of whatever kind, a failure is errc::no_quorum to lockcore (lockcore::epoch_register); the reason remains.
    static lockcore::failure to_register_failure(const failure& cause) {
        lockcore::failure f;
        f.code = lockcore::errc::no_quorum;
        f.detail = cause.detail;
        return f;
    }

    pg::database& database_;
};

/// Blocks the signals that end a process by default, in every thread, and waits for them in one. SIGTERM and SIGINT
/// stop the gateway, SIGHUP reloads its configuration. SIGUSR1 and SIGUSR2 change nothing, because some log rotations
/// send one to every process. Signals of timers and descriptors and real-time signals are ignored. SIGQUIT keeps its
/// default, as do the signals of faults and of exceeded limits: the process ends, with a core dump where log.core_dumps
/// is on.
class process_signals {
  public:
    process_signals() {
        sigemptyset(&set_);
        for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2})
            sigaddset(&set_, number);
        pthread_sigmask(SIG_BLOCK, &set_, nullptr);
        for (const int number : {SIGPIPE, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT})
            std::signal(number, SIG_IGN);
        for (int number = SIGRTMIN; number <= SIGRTMAX; ++number)
            std::signal(number, SIG_IGN);
    }

    /// Waits for a signal that stops the gateway, and calls `reload` at each SIGHUP until then.
    ///
    /// Out: the signal that stops it, SIGTERM or SIGINT.
    int wait_for_stop(const std::function<void()>& reload) const {
        for (;;) {
            int number = 0;
            sigwait(&set_, &number);
            if (number == SIGTERM || number == SIGINT) return number;
            if (number == SIGHUP) {
                reload();
            } else {
                spdlog::info("signal {} ({}): ignored; SIGHUP reloads the configuration", number, sigabbrev_np(number));
            }
        }
    }

    /// Waits until `end`, or until another SIGTERM or SIGINT. SIGHUP and the others stay pending, without effect.
    static void wait_for_second_stop(std::chrono::steady_clock::time_point end) {
        sigset_t stops;
        sigemptyset(&stops);
        sigaddset(&stops, SIGTERM);
        sigaddset(&stops, SIGINT);
        for (auto now = std::chrono::steady_clock::now(); now < end; now = std::chrono::steady_clock::now()) {
            const auto left = std::chrono::ceil<std::chrono::nanoseconds>(end - now);
            const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
            const timespec wait{seconds.count(), (left - seconds).count()};
            if (sigtimedwait(&stops, nullptr, &wait) > 0) return;
        }
    }

  private:
    sigset_t set_{};  ///< The blocked signals, which wait_for_stop() takes.
};

/// Keeps the secrets in memory from core dumps, and from debuggers and /proc for all users but root.
void forbid_core_dumps() {
    if (::prctl(PR_SET_DUMPABLE, 0) != 0) spdlog::warn("core dumps could not be forbidden: {}", std::strerror(errno));
}

/// Compares the configuration with the row of the cluster. Out: the cluster's answer bound.
result<std::chrono::milliseconds> join_cluster(pg::database& database, const config& cfg) {
    pg::membership settings;
    for (const auto& node : cfg.protocol.nodes)
        settings.node_names.push_back(node.name);
    settings.cell = cfg.protocol.cell;
    settings.quorum = lockcore::majority_of(cfg.protocol.nodes.size());
    settings.max_ttl = cfg.protocol.max_ttl;
    settings.answer_bound = cfg.protocol.answer_bound;
    settings.takes_answer_bound = !cfg.lease.answer_bound_is_given;
    return database.join_cluster(std::move(settings));
}

void log_join_failure(const failure& cause) {
    const bool refused_by_cluster = cause.facts.contains("sqlstate");
    spdlog::critical("{}{}", cause.detail,
                     refused_by_cluster ? " (fencing.cluster; docs/operations/configuration.md says how to change "
                                          "settings that all gateways share)"
                                        : "");
}

/// Logs where the gateway listens (`status`), how many connections it accepts, and which keys it has.
void log_start(const config& cfg, const std::string& status, const file_limit& files,
               const lockcore::hmac_sha256& lease_keys) {
    spdlog::info("fencegate {} {} for cell {}", FENCEGATE_VERSION, status, cfg.protocol.cell);
    const bool fewer_than_configured = files.connections < cfg.http.connections_max;
    spdlog::log(fewer_than_configured ? spdlog::level::warn : spdlog::level::info, "{}", files.describe(cfg));
    const auto ids = lease_keys.key_ids();  // first that of the key that signs
    const std::vector<std::string> accepted_too(ids.begin() + 1, ids.end());
    spdlog::info("lease ids are signed with {}{}{}", ids.front(),
                 accepted_too.empty() ? "" : "; accepted too: ", fmt::join(accepted_too, ", "));
}

}  // namespace

int serve(const config& cfg, const config_source& source) {
    start_logging(cfg.log);
    if (!cfg.log.core_dumps) forbid_core_dumps();
    log_warnings(cfg);
    if (const auto exposed = find_exposure_fault(cfg))
        spdlog::warn("--insecure: {}; only a proxy that does what is missing may reach this port", *exposed);
    const process_signals signals;  // before any thread, so that all of them inherit the mask
    service_notifier notifier;

    // What may prevent the start is checked first.
    const auto tls = make_tls(cfg);
    if (!tls) {
        spdlog::critical("{}", tls.error().detail);
        return exit_bad_config;
    }
    memory_budgets memory(cfg.http.bodies_max_bytes, cfg.http.answers_max_bytes);
    postgres_config postgres = cfg.postgres;
    postgres.password = take_secret_variable("PGPASSWORD");
    pg::database database(postgres, memory.answers);
    if (const auto ready = database.check(); !ready) {
        spdlog::critical("PostgreSQL: {}", ready.error().detail);
        return exit_unavailable;
    }
    const auto answer_bound = join_cluster(database, cfg);
    if (!answer_bound) {
        log_join_failure(answer_bound.error());
        return exit_unavailable;
    }
    lockcore::config lock_settings = cfg.protocol;
    lock_settings.answer_bound = *answer_bound;
    if (const auto warning = find_timeout_warning(lock_settings, *answer_bound)) spdlog::warn("{}", *warning);
    const file_limit files = raise_file_limit(cfg);
    if (files.connections == 0) {  // the limit is too low to serve
        spdlog::critical("{}", files.describe(cfg));
        return exit_unavailable;
    }
    http_config http_settings = cfg.http;
    http_settings.connections_max = files.connections;

    // Construction: each part after those that it refers to. Parts with coroutines of their own run them in the first
    // thread (`io`).
    api::running_keys keys;  // before the threads: at their end they destroy coroutines that remove keys from it
    api::waiting_writes waiting;
    runtime::io_threads threads(cfg.http.threads);
    auto& io = *threads.contexts().front();
    audit::event_sink events(cfg.audit, name_of_gateway(cfg.http), database, io);
    audit::expiry_watch expiries(events, database, io);
    audit::history_feed feed(database, io);
    audit::digest_maker digests(cfg.audit, name_of_gateway(cfg.http), database, io);
    audit::history_keeper keeper(cfg.history, database, io);
    const limits::principal_shares shared_by_principals{.requests = files.connections,
                                                        .waiters = cfg.protocol.waiters_max,
                                                        .history_streams = audit::history_feed::followers_max};
    limits::limiter limiter(cfg.limits, shared_by_principals, cfg.auth.is_keyless(),
                            cfg.http.connections_per_address_max);
    // An event of a lease or a node passes from node_changes to the metrics, held_leases, expiries and events.
    limits::held_leases held_leases(limiter, expiries);
    metrics::registry metric_registry(held_leases);
    metric_registry.set_certificates(find_certificate_ends(cfg.tls, cfg.redis_tls, cfg.postgres.conninfo));
    audit::denial_recorder denials(metric_registry.requests(), events, io);
    node_log node_changes(metric_registry.leases(), io);
    audit::storage_watch storage(database, events, io, cfg.http.request_timeout);
    postgres_register epochs(database);
    lockcore::hmac_sha256 lease_keys(cfg.lease.signing_key, cfg.lease.verification_keys);
    lockcore::lock_manager locks(std::move(lock_settings), threads.contexts(),
                                 {.epochs = epochs, .mac = lease_keys, .events = node_changes});
    metrics::leak_watch leaks(locks, cfg.lease.leak_scan_interval, io);
    metrics::waiting_watch waiting_callers(locks, database, name_of_gateway(cfg.http), io);
    metrics::guard_watch guard(database, cfg.postgres.guard_check_interval, io);
    metric_registry.add_readings({.locks = locks,
                                  .leaks = leaks,
                                  .database = database,
                                  .events = events,
                                  .digests = digests,
                                  .guard = guard,
                                  .storage = storage,
                                  .memory = memory,
                                  .limiter = limiter,
                                  .version = FENCEGATE_VERSION,
                                  .cell = cfg.protocol.cell});
    std::atomic<bool> stopping = false;
    const api::lease_services lease_api{.settings = cfg,
                                        .locks = locks,
                                        .database = database,
                                        .events = events,
                                        .limiter = limiter,
                                        .held_leases = held_leases,
                                        .waiting = waiting_callers};
    const api::write_services write_api{.settings = cfg,
                                        .locks = locks,
                                        .database = database,
                                        .storage = storage,
                                        .keys = keys,
                                        .waiting = waiting,
                                        .leases = lease_api};
    const api::history_services history_api{
        .settings = cfg, .locks = locks, .database = database, .events = events, .feed = feed, .limiter = limiter};
    const api::state_services state_api{.settings = cfg,
                                        .locks = locks,
                                        .database = database,
                                        .events = events,
                                        .storage = storage,
                                        .limiter = limiter,
                                        .metric_registry = metric_registry,
                                        .leaks = leaks,
                                        .guard = guard,
                                        .lease_keys = lease_keys,
                                        .stopping = stopping};
    const api::gateway_services services{
        .leases = lease_api, .writes = write_api, .history = history_api, .state = state_api};
    http::server server(http_settings, cfg.auth, api::routes(services), threads.contexts(), memory, limiter, denials,
                        *tls);
    config_reload reload(source, cfg, *tls, server, lease_keys, limiter, metric_registry, events);

    if (const auto listening = server.listen(); !listening) {
        spdlog::critical("{}", listening.error().detail);
        return exit_unavailable;
    }
    // The start: what serves requests comes last.
    database.start();
    threads.start();
    events.start();
    denials.start();
    feed.start();
    digests.start();
    keeper.start();
    locks.start();
    storage.start(locks);
    expiries.start(locks);
    leaks.start();
    waiting_callers.start();
    guard.start();
    server.start();
    const std::string status = fmt::format("listens on {}://{}:{}", cfg.tls ? "https" : "http",
                                           format_url_host(cfg.http.address), server.port());
    log_start(cfg, status, files, lease_keys);

    notifier.report_ready(status);
    notifier.start_watchdog(threads.contexts());
    const int signal = signals.wait_for_stop([&] {
        notifier.report_reloading();
        const bool applied = reload.run();
        notifier.report_ready(applied ? status : status + "; the last reload was refused, for the reason in the log");
    });

    // The stop: no new requests, then those under way, then what uses the nodes, then what is left to write. The parts
    // without a stop of their own run until the threads end.
    notifier.report_stopping();
    stopping = true;
    if (signal == SIGTERM && cfg.http.shutdown_grace > 0ms) {
        spdlog::info("signal {}: not ready any more, stopping in {} ms (http.shutdown_grace_ms) or at another signal",
                     signal, cfg.http.shutdown_grace.count());
        server.close_after_answers();
        process_signals::wait_for_second_stop(std::chrono::steady_clock::now() + cfg.http.shutdown_grace);
    }
    spdlog::info("signal {}: stopping", signal);
    server.stop_accepting();
    locks.refuse_new_leases();  // so that callers that wait for a lease get an answer before the server stops
    server.stop(std::chrono::steady_clock::now() + requests_timeout);
    expiries.stop();  // this and the next two use the lock_manager
    leaks.stop();
    waiting_callers.stop();
    locks.stop();
    denials.flush();  // adds its last events, so before the events are written
    const bool all_written = boost::asio::co_spawn(io, events.flush(std::chrono::steady_clock::now() + events_timeout),
                                                   boost::asio::use_future)
                                 .get();
    if (!all_written)
        spdlog::error("{} events could not be written to the history in time and are lost", events.buffer().size());
    database.drain(std::chrono::steady_clock::now() + jobs_timeout);
    threads.stop();
    spdlog::info("stopped");
    return all_written ? exit_ok : exit_failed;
}

}  // namespace fencegate
