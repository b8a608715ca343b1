#include <gateway/metrics/registry.hpp>

#include <gateway/audit/digest_maker.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/limits/limiter.hpp>
#include <gateway/metrics/watches.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <prometheus/text_serializer.h>

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>

namespace fencegate::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

/// Approximates the start of the process: static variables are initialized at start-up.
const auto loaded_at = std::chrono::system_clock::now();

std::chrono::duration<double> time_of(const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
}

/// Counts the open files, at most once a second: listing takes milliseconds if there are thousands, and every caller
/// may ask for metrics.
std::size_t count_open_files(std::size_t most) {
    using clock = std::chrono::steady_clock;
    static std::mutex mutex;
    static clock::time_point counted_at;
    static std::size_t count = 0;
    const std::lock_guard lock(mutex);
    const auto now = clock::now();
    if (counted_at != clock::time_point{} && now - counted_at < std::chrono::seconds(1)) return count;
    std::error_code ec;
    count = static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd", ec), std::filesystem::directory_iterator()));
    // No file is left for the listing itself.
    if (ec == std::errc::too_many_files_open) count = most;
    counted_at = now;
    return count;
}

using labels = std::vector<ClientMetric::Label>;

constexpr std::array node_states{lockcore::node_state::voting, lockcore::node_state::quarantined,
                                 lockcore::node_state::misconfigured, lockcore::node_state::identifying,
                                 lockcore::node_state::unreachable};

/// Builds metric families.
class families {
  public:
    MetricFamily& begin(std::string name, std::string help, MetricType type) {
        MetricFamily& out = made_.emplace_back();
        out.name = std::move(name);
        out.help = std::move(help);
        out.type = type;
        return out;
    }
    void gauge(std::string name, std::string help, double value, labels sample_labels = {}) {
        add(begin(std::move(name), std::move(help), MetricType::Gauge), value, std::move(sample_labels));
    }
    void counter(std::string name, std::string help, double value) {
        add(begin(std::move(name), std::move(help), MetricType::Counter), value, {});
    }
    static void add(MetricFamily& family, double value, labels sample_labels) {
        ClientMetric& sample = family.metric.emplace_back();
        sample.label = std::move(sample_labels);
        (family.type == MetricType::Counter ? sample.counter.value : sample.gauge.value) = value;
    }
    std::vector<MetricFamily> take() { return std::move(made_); }

  private:
    std::vector<MetricFamily> made_;
};

void read_nodes(families& out, const std::vector<lockcore::node_status>& nodes) {
    auto& state = out.begin("fencegate_node_state", "1 for the state that a Redis node is in.", MetricType::Gauge);
    for (const auto& node : nodes) {
        for (const auto candidate : node_states)
            families::add(state, node.state == candidate ? 1 : 0,
                          {{"node", node.name}, {"state", to_string(candidate)}});
    }
    auto& latency =
        out.begin("fencegate_node_latency_seconds", "How long the latest answer of a node took.", MetricType::Gauge);
    for (const auto& node : nodes)
        families::add(latency, to_seconds(node.latency), {{"node", node.name}});
    auto& left =
        out.begin("fencegate_node_quarantine_seconds", "How long a node's quarantine still lasts.", MetricType::Gauge);
    for (const auto& node : nodes)
        families::add(left, to_seconds(node.quarantine_left), {{"node", node.name}});
    auto& epoch = out.begin("fencegate_node_epoch", "The epoch under which a node was admitted.", MetricType::Gauge);
    for (const auto& node : nodes)
        families::add(epoch, static_cast<double>(lockcore::value_of(node.admitted_epoch)), {{"node", node.name}});
    lockcore::epoch highest{};
    for (const auto& node : nodes)
        highest = std::max(highest, node.observed_epoch);
    out.gauge("fencegate_highest_epoch", "The highest epoch that a node knows of, drawn for an admission or a floor.",
              static_cast<double>(lockcore::value_of(highest)));
}

void read_leaks(families& out, const leak_watch& leaks) {
    const auto found = leaks.latest();
    if (!found) return;
    auto& keys = out.begin("fencegate_leaked_keys", "Lease keys without a ttl, by node, when it was last searched.",
                           MetricType::Gauge);
    for (const auto& node : found->report.nodes) {
        if (node.complete) families::add(keys, static_cast<double>(node.without_ttl), {{"node", node.name}});
    }
    out.gauge("fencegate_minority_leases", "Leases that only a minority of the nodes held at the latest search.",
              static_cast<double>(found->report.held_by_minority));
    out.gauge("fencegate_leak_scan_time_seconds",
              "When the latest search for leaked leases ended, in seconds since 1970.",
              to_seconds(found->at.time_since_epoch()));
}

void read_database(families& out, const pg::database& database) {
    const pg::executor_status now = database.status();
    const std::string name = "fencegate_postgres_workers";
    auto& workers =
        out.begin(name, "Workers for PostgreSQL; away: their last attempt to connect failed.", MetricType::Gauge);
    families::add(workers, static_cast<double>(now.workers), {{"state", "all"}});
    families::add(workers, static_cast<double>(now.busy), {{"state", "busy"}});
    families::add(workers, static_cast<double>(now.disconnected), {{"state", "away"}});
    out.gauge("fencegate_postgres_queue", "Calls that wait for a worker.", static_cast<double>(now.queued));
    out.gauge("fencegate_postgres_queue_max", "postgres.queue_max.", static_cast<double>(now.queue_max));

    const pg::batch_sizes& sizes = database.batches();
    auto& batches =
        out.begin("fencegate_write_batch_size",
                  "Writes that a worker took at once; they share a transaction where they can.", MetricType::Histogram);
    auto& histogram = batches.metric.emplace_back().histogram;
    for (std::size_t n = 0; n < pg::batch_sizes::classes; ++n) {
        histogram.sample_count += sizes.counted(n);
        if (n + 1 < pg::batch_sizes::classes)  // larger ones are counted in sample_count alone
            histogram.bucket.push_back({histogram.sample_count, static_cast<double>(std::size_t{1} << n)});
    }
    histogram.sample_sum = static_cast<double>(sizes.writes());
}

void read_times(families& out, const pg::database& database) {
    auto& family = out.begin("fencegate_postgres_seconds",
                             "How long a worker took for what it did at once: a transaction of writes, a read, a query "
                             "of the history, a wait for the disk.",
                             MetricType::Histogram);
    for (const auto& [work, times] : database.times()) {
        auto& sample = family.metric.emplace_back();
        sample.label = {{"work", std::string(work)}};
        for (std::size_t n = 0; n < pg::work_times::classes; ++n) {
            sample.histogram.sample_count += times->counted(n);
            if (n + 1 < pg::work_times::classes)
                sample.histogram.bucket.push_back(
                    {sample.histogram.sample_count, to_seconds(pg::work_times::end_of(n))});
        }
        sample.histogram.sample_sum = to_seconds(times->sum());
    }
}

void read_history(families& out, const std::optional<history_extent>& extent) {
    if (!extent) return;
    out.gauge("fencegate_history_bytes", "Size of the history with its indexes, when PostgreSQL was last asked.",
              static_cast<double>(extent->bytes));
    out.gauge("fencegate_history_oldest_timestamp_seconds", "When the oldest event of the history was; 0: it is empty.",
              extent->oldest);
    out.gauge("fencegate_direct_refusals",
              "Refusals of direct SQL among the last 10,000 of writes in the hour before PostgreSQL was last asked.",
              static_cast<double>(extent->direct_refusals));
}

void read_storage(families& out, const audit::storage_watch& storage) {
    const auto now = storage.read();
    out.gauge("fencegate_storage_generation_current",
              "1 while PostgreSQL is of the storage generation that the fences were set in; 0: nothing is let in.",
              now.lets_writes_in ? 1 : 0);
    out.counter("fencegate_storage_generation_changes_total",
                "Promotions, restores and replacements of PostgreSQL after which the floor was raised.",
                static_cast<double>(now.changes));
    out.counter("fencegate_lost_writes_total",
                "Writes that this gateway acknowledged and that were gone after a failover of PostgreSQL.",
                static_cast<double>(now.lost_writes));
}

void read_memory(families& out, const memory_budgets& memory) {
    const std::array<std::pair<const char*, const memory_budget*>, 2> kinds{
        {{"bodies", &memory.bodies}, {"answers", &memory.answers}}};
    auto& used = out.begin("fencegate_http_memory_bytes", "Bytes that request bodies and answers use of their budgets.",
                           MetricType::Gauge);
    for (const auto& [kind, budget] : kinds)
        families::add(used, static_cast<double>(budget->used()), {{"kind", kind}});
    auto& most = out.begin("fencegate_http_memory_max_bytes", "http.bodies_max_bytes and http.answers_max_bytes.",
                           MetricType::Gauge);
    for (const auto& [kind, budget] : kinds)
        families::add(most, static_cast<double>(budget->bytes_max()), {{"kind", kind}});
}

void read_limits(families& out, const limits::limiter& limiter) {
    auto& refused =
        out.begin("fencegate_limit_refusals_total",
                  "Requests refused because of a limit of their address or principal, by limit.", MetricType::Counter);
    for (const auto kind : limits::all_refusals)
        families::add(refused, static_cast<double>(limiter.refused(kind)), {{"limit", std::string(to_string(kind))}});
}

void read_process(families& out) {
    const process_status now = read_process_status();
    out.counter("process_cpu_seconds_total", "Processor time used.", to_seconds(now.processor_time));
    out.gauge("process_resident_memory_bytes", "Memory in use.", static_cast<double>(now.resident_bytes));
    out.gauge("process_open_fds", "Open file descriptors.", static_cast<double>(now.open_files));
    out.gauge("process_max_fds", "Most file descriptors that may be open.", static_cast<double>(now.open_files_max));
    out.gauge("process_start_time_seconds", "When it began, in seconds since 1970.",
              to_seconds(now.started_at.time_since_epoch()));
}

}  // namespace

process_status read_process_status() {
    process_status out;
    rusage used{};
    if (getrusage(RUSAGE_SELF, &used) == 0) out.processor_time = time_of(used.ru_utime) + time_of(used.ru_stime);
    std::size_t pages_total = 0, pages_resident = 0;
    if (std::ifstream statm("/proc/self/statm"); statm >> pages_total >> pages_resident)
        out.resident_bytes = pages_resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) out.open_files_max = limit.rlim_cur;
    out.open_files = count_open_files(out.open_files_max);
    out.started_at = loaded_at;
    return out;
}

std::vector<MetricFamily> readings::Collect() const {
    families out;
    out.gauge("fencegate_build_info", "1; the labels are the version and the cell.", 1,
              {{"version", sources_.version}, {"cell", std::to_string(sources_.cell)}});
    out.gauge("fencegate_quorum", "1 while a majority of the Redis nodes votes.", sources_.locks.has_quorum() ? 1 : 0);
    read_nodes(out, sources_.locks.nodes());
    out.gauge("distributed_lock_waiters", "Callers that wait for a lease.",
              static_cast<double>(sources_.locks.waiters()));
    read_leaks(out, sources_.leaks);
    read_database(out, sources_.database);
    read_times(out, sources_.database);
    read_history(out, sources_.guard.history());
    read_storage(out, sources_.storage);
    out.gauge("fencegate_history_buffer_rows", "Lease events that wait to be written to the history.",
              static_cast<double>(sources_.events.buffer().size()));
    out.gauge("fencegate_history_buffer_full",
              "1 while less than an eighth of it is free: new leases are refused, or events are dropped soon "
              "(audit.on_full).",
              sources_.events.buffer().is_nearly_full() ? 1 : 0);
    out.counter("fencegate_history_dropped_total", "Events lost: the buffer was full, or PostgreSQL refused them.",
                static_cast<double>(sources_.events.buffer().dropped()));
    if (const auto lag = sources_.digests.lag())
        out.gauge("fencegate_history_digest_lag_seconds",
                  "How long ago every row of the history was in a signed digest (audit.digest_key_file).",
                  to_seconds(*lag));
    if (const auto guard = sources_.guard.latest()) {
        out.gauge("fencegate_guard_faults",
                  "What would let a change past the guard, counted when PostgreSQL was last asked; /v1/guard names it.",
                  static_cast<double>(guard->report.faults.size()));
        auto& tables =
            out.begin("fencegate_guard_tables",
                      "Tables that are or were protected, by state, when PostgreSQL was last asked; open: changes are "
                      "not checked. /v1/guard names them.",
                      MetricType::Gauge);
        for (const auto state : table_states)
            families::add(tables, static_cast<double>(count_tables(guard->report.state, state)),
                          {{"state", std::string(state)}});
    }
    read_memory(out, sources_.memory);
    read_limits(out, sources_.limiter);
    read_process(out);
    return out.take();
}

registry::registry(lockcore::event_observer& events)
    : requests_(registry_),
      leases_(registry_, events),
      reloads_(prometheus::BuildCounter()
                   .Name("fencegate_config_reloads_total")
                   .Help("Reloads of the configuration (SIGHUP); result: applied, or refused because of a fault.")
                   .Register(registry_)),
      reloads_applied_(reloads_.Add({{"result", "applied"}})),
      reloads_refused_(reloads_.Add({{"result", "refused"}})),
      certificates_(
          prometheus::BuildGauge()
              .Name("fencegate_certificate_expiry_timestamp_seconds")
              .Help("When the first certificate of a file expires, by the key that names the file, as read at "
                    "the start or the last reload.")
              .Register(registry_)) {}

void registry::set_certificates(const std::vector<certificate_end>& ends) {
    const auto before = std::exchange(certificates_now_, {});
    for (const auto& each : ends) {
        auto& gauge = certificates_.Add({{"file", each.name}});
        gauge.Set(to_seconds(each.at.time_since_epoch()));
        certificates_now_.push_back(&gauge);
    }
    for (auto* gauge : before) {
        if (std::ranges::find(certificates_now_, gauge) == certificates_now_.end()) certificates_.Remove(gauge);
    }
}

std::string registry::expose() const {
    auto families = registry_.Collect();
    if (readings_) {
        auto read = readings_->Collect();
        std::move(read.begin(), read.end(), std::back_inserter(families));
    }
    return prometheus::TextSerializer().Serialize(families);
}

}  // namespace fencegate::metrics
