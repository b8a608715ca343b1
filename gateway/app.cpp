#include <gateway/app.hpp>

#include <gateway/api/routes.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/audit/denial_recorder.hpp>
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
#include <gateway/runtime/io_threads.hpp>
#include <gateway/service_notifier.hpp>

#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/use_future.hpp>

#include <sys/prctl.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>

namespace fencegate {
namespace {

using namespace std::chrono_literals;

/// How long requests under way may take after SIGTERM, and how long writing the event buffer to the history may take.
constexpr auto finish_within = 5s;
constexpr auto flush_within = 5s;

/// Keeps the register of epochs in PostgreSQL.
class postgres_register final : public lockcore::epoch_register {
  public:
    explicit postgres_register(pg::database& database) : database_(database) {}

    boost::asio::awaitable<lockcore::result<lockcore::node_record>> find(std::string node_name) override {
        auto find = [name = std::move(node_name)](pg::session& session) { return pg::find_node_record(session, name); };
        auto found = co_await database_.run(pg::place::any_worker(), deadline(), std::move(find));
        if (found) co_return *found;
        co_return unreachable(found.error());
    }

    boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> draw(lockcore::epoch_request request) override {
        auto draw = [asked = std::move(request)](pg::session& session) { return pg::draw_epoch(session, asked); };
        auto drawn = co_await database_.run(pg::place::any_worker(), deadline(), std::move(draw));
        if (drawn) co_return *drawn;
        co_return unreachable(drawn.error());
    }

    boost::asio::awaitable<lockcore::result<void>> note_unsynced(std::string node_name) override {
        auto note = [name = std::move(node_name)](pg::session& session) { pg::note_node_unsynced(session, name); };
        auto noted = co_await database_.run(pg::place::any_worker(), deadline(), std::move(note));
        if (noted) co_return lockcore::result<void>();
        co_return unreachable(noted.error());
    }

  private:
    static std::chrono::steady_clock::time_point deadline() { return std::chrono::steady_clock::now() + 5s; }
    static lockcore::failure unreachable(const failure& cause) {
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

    /// Waits for a signal that stops the gateway, and calls `reload` at each SIGHUP until then. Out: that signal.
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

    /// Waits until `end`, or until a further signal that stops the gateway. Other signals change nothing any more.
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
    sigset_t set_{};
};

/// Returns HOST:PORT, the name of this gateway in the history.
std::string name_of_gateway(const config& cfg) {
    boost::system::error_code ignored;
    return boost::asio::ip::host_name(ignored) + ":" + std::to_string(cfg.http.port);
}

/// Keeps the secrets in memory from core dumps, and from debuggers and /proc for all users but root.
void forbid_core_dumps() {
    if (::prctl(PR_SET_DUMPABLE, 0) != 0) spdlog::warn("core dumps could not be forbidden: {}", std::strerror(errno));
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
    pg::membership members;
    for (const auto& node : cfg.locks.nodes)
        members.node_names.push_back(node.name);
    members.cell = cfg.locks.cell;
    members.quorum = lockcore::majority_of(cfg.locks.nodes.size());
    members.max_ttl = cfg.locks.max_ttl;
    members.answer_bound = cfg.locks.answer_bound;
    members.takes_answer_bound = !cfg.lease.answer_bound_is_given;
    const auto answer_bound = database.join_cluster(std::move(members));
    if (!answer_bound) {
        const failure& cause = answer_bound.error();
        spdlog::critical("{}{}", cause.detail,
                         cause.facts.contains("sqlstate")
                             ? " (fencing.cluster; docs/operations/configuration.md says how to change "
                               "settings that all gateways share)"
                             : "");
        return exit_unavailable;
    }
    lockcore::config lock_settings = cfg.locks;
    lock_settings.answer_bound = *answer_bound;
    if (const auto warning = find_timeout_warning(lock_settings, *answer_bound)) spdlog::warn("{}", *warning);

    const file_limit limit = raise_file_limit(cfg);
    if (limit.connections == 0) {
        spdlog::critical("{}", limit.describe(cfg));
        return exit_unavailable;
    }
    http_config http_settings = cfg.http;
    http_settings.connections_max = limit.connections;

    api::running_keys keys;  // outlives the coroutines that the end of the threads destroys, which remove theirs
    runtime::io_threads threads(cfg.http.threads);
    auto& first = *threads.contexts().front();
    audit::event_sink events(cfg.audit, database, first);
    audit::expiry_watch expiries(events, database, first);
    audit::history_feed feed(database, first);
    audit::history_keeper keeper(cfg.history, database, first);
    const limits::principal_shares places{limit.connections, cfg.locks.waiters_max, audit::history_feed::followers_max};
    limits::limiter limiter(cfg.limits, places, cfg.auth.is_keyless(), cfg.http.connections_per_address_max);
    limits::held_leases held_leases(limiter, expiries);
    metrics::registry metric_registry(held_leases);
    audit::denial_recorder denials(metric_registry.requests(), events, first);
    node_log node_changes(metric_registry.leases(), first);
    audit::storage_watch storage(database, events, first, name_of_gateway(cfg), cfg.http.request_timeout);
    postgres_register epochs(database);
    lockcore::hmac_sha256 lease_keys(cfg.lease.signing_key, cfg.lease.verification_keys);
    lockcore::lock_manager locks(std::move(lock_settings), threads.contexts(), {epochs, lease_keys, node_changes});
    metrics::leak_watch leaks(locks, cfg.lease.leak_scan_interval, first);
    metrics::guard_watch guard(database, cfg.postgres.guard_check_interval, first);
    metric_registry.add_readings(
        {locks, leaks, database, events, guard, storage, memory, limiter, FENCEGATE_VERSION, cfg.locks.cell});
    std::atomic<bool> stopping = false;
    const api::gateway_services services{
        {{cfg, locks, database, events, limiter, held_leases}, storage, keys},
        {cfg, locks, database, feed, limiter},
        {cfg, locks, database, events, storage, limiter, metric_registry, leaks, guard, lease_keys, stopping}};
    http::server server(http_settings, cfg.auth, api::routes(services), threads.contexts(), memory, limiter, denials,
                        *tls);
    config_reload reload(source, cfg, *tls, server, lease_keys, limiter, metric_registry);

    if (const auto listening = server.listen(); !listening) {
        spdlog::critical("{}", listening.error().detail);
        return exit_unavailable;
    }
    database.start();
    threads.start();
    events.start();
    denials.start();
    feed.start();
    keeper.start();
    locks.start();
    storage.start(locks);
    expiries.start(locks);
    leaks.start();
    guard.start();
    server.start();
    const std::string status = fmt::format("listens on {}://{}:{}", cfg.tls ? "https" : "http",
                                           format_url_host(cfg.http.address), server.port());
    spdlog::info("fencegate {} {} for cell {}", FENCEGATE_VERSION, status, cfg.locks.cell);

    spdlog::log(limit.connections < cfg.http.connections_max ? spdlog::level::warn : spdlog::level::info, "{}",
                limit.describe(cfg));

    const auto key_ids = lease_keys.key_ids();
    spdlog::info("lease ids are signed with {}{}{}", key_ids.front(), key_ids.size() > 1 ? "; accepted too: " : "",
                 fmt::join(key_ids.begin() + 1, key_ids.end(), ", "));

    notifier.report_ready(status);
    notifier.start_watchdog(threads.contexts());
    const int signal = signals.wait_for_stop([&] {
        notifier.report_reloading();
        const bool applied = reload.run();
        notifier.report_ready(applied ? status : status + "; the last reload was refused, for the reason in the log");
    });
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
    server.stop(std::chrono::steady_clock::now() + finish_within);
    expiries.stop();
    leaks.stop();
    locks.stop();
    denials.flush();
    const bool written = boost::asio::co_spawn(first, events.flush(std::chrono::steady_clock::now() + flush_within),
                                               boost::asio::use_future)
                             .get();
    if (!written) spdlog::error("{} events could not be written to the history in time and are lost", events.size());
    database.drain(std::chrono::steady_clock::now() + finish_within);
    threads.stop();
    spdlog::info("stopped");
    return written ? exit_ok : exit_failed;
}

}  // namespace fencegate
