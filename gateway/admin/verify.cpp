#include <gateway/admin/commands.hpp>

#include <gateway/admin/history_checker.hpp>
#include <gateway/admin/report.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/history/history_walk.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/runtime/terminal.hpp>
#include <gateway/runtime/text.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;

/// The timeout of one statement, which reads some thousand rows of an index.
constexpr auto statement_timeout = 60s;
constexpr std::size_t query_batch_max = 1'000;
/// How long events of leases may take to reach the history after the writes with these leases.
constexpr auto late_events_timeout = 10s;
constexpr auto retry_interval = 500ms;

/// Shows the progress on a terminal.
class progress_bar {
  public:
    progress_bar(std::int64_t rows, bool partial)
        : rows_(rows), partial_(partial), shown_(isatty(STDERR_FILENO) == 1) {}
    ~progress_bar() {
        if (shown_) std::cerr << "\r\x1b[K";
    }
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;

    void show(std::int64_t rows, const std::string& resource) {
        const auto now = std::chrono::steady_clock::now();
        if (!shown_ || now < next_) return;
        next_ = now + 200ms;
        constexpr int width = 24;
        constexpr std::size_t name_width = 40;
        std::cerr << "\r\x1b[K";
        if (!partial_ && rows_ > 0) {
            const auto filled = std::min<std::int64_t>(width, rows * width / rows_);
            std::cerr << '[';
            for (int i = 0; i < width; ++i)
                std::cerr << (i < filled ? '#' : '.');
            std::cerr << "] ";
        }
        std::cerr << rows << " rows, " << runtime::truncate_text(runtime::make_printable(resource), name_width)
                  << std::flush;
    }

  private:
    std::int64_t rows_;
    bool partial_;
    bool shown_;
    std::chrono::steady_clock::time_point next_{};
};

class verification {
  public:
    verification(pg::session& session, const verify_options& options, const pg::walk_bounds& bounds)
        : session_(session),
          options_(options),
          bounds_(bounds),
          changes_(pg::find_generation_changes(session)),
          checker_(options.skew_ms * 1'000, changes_) {}

    verification_result run() {
        pg::history_walk walk(session_, range());
        {
            progress_bar bar(bounds_.rows, options_.from || options_.to || options_.resource_prefix);
            for (auto rows = walk.next_chunk(); !rows.empty(); rows = walk.next_chunk()) {
                for (const auto& row : rows)
                    checker_.add(row);
                collect(false);
                bar.show(checker_.counts().rows, rows.back().resource);
            }
        }
        checker_.finish();
        collect(true);
        report_unscanned_rows();
        recheck_late_writes();
        result_.protection = find_protection();
        result_.guard_state = pg::read_guard_state(session_);
        result_.counts = checker_.counts();
        result_.generation_changes = static_cast<std::int64_t>(changes_.size());
        result_.from_us = bounds_.from_us;
        result_.to_us = bounds_.to_us;
        return std::move(result_);
    }

  private:
    void add(finding f) {
        ++result_.broken;
        if (++result_.broken_by_promise[f.promise] <= findings_max) result_.findings.push_back(std::move(f));
    }

    void collect(bool all) {
        for (auto& f : checker_.take_findings())
            add(std::move(f));
        std::ranges::move(checker_.take_ungranted_writes(), std::back_inserter(ungranted_writes_));
        std::ranges::move(checker_.take_fences(), std::back_inserter(fences_));
        if (all || ungranted_writes_.size() >= query_batch_max) check_grants();
        if (all || fences_.size() >= query_batch_max) compare_fences();
    }

    static std::vector<ungranted_write> select_ungranted(pg::session& session, std::vector<ungranted_write> writes) {
        std::vector<pg::token_of_resource> tokens;
        tokens.reserve(writes.size());
        for (const auto& write : writes)
            tokens.push_back({write.resource, write.token});
        auto granted = pg::find_granted(session, tokens);
        std::ranges::sort(granted, std::greater{});
        for (const std::size_t index : granted)
            writes.erase(writes.begin() + static_cast<std::ptrdiff_t>(index));
        return writes;
    }

    void check_grants() {
        for (auto& write : select_ungranted(session_, std::exchange(ungranted_writes_, {}))) {
            // The grant of a recent write may still be in the buffer of a gateway.
            const bool may_be_late =
                write.at_us > bounds_.to_us - std::chrono::microseconds(late_events_timeout).count();
            if (may_be_late && late_writes_.size() < query_batch_max) {
                late_writes_.push_back(std::move(write));
            } else {
                report_missing_grant(write);
            }
        }
    }

    void recheck_late_writes() {
        const auto end = std::chrono::steady_clock::now() + late_events_timeout;
        while (!late_writes_.empty()) {
            late_writes_ = select_ungranted(session_, std::move(late_writes_));
            if (late_writes_.empty() || std::chrono::steady_clock::now() >= end) break;
            std::this_thread::sleep_for(retry_interval);
        }
        for (const auto& write : late_writes_)
            report_missing_grant(write);
    }

    /// Whether the grant may have been lost: the failover after the write lost what was recorded last, and a grant may
    /// reach the history after the writes under it.
    bool may_be_lost(const ungranted_write& write) const {
        const auto change = std::ranges::upper_bound(changes_, write.id, {}, &generation_change::id);
        return change != changes_.end() && write.token < change->floor &&
               write.at_us > change->last_write_at_us - std::chrono::microseconds(late_events_timeout).count();
    }

    void report_missing_grant(const ungranted_write& write) {
        if (may_be_lost(write)) {
            ++result_.lost_grants;
            return;
        }
        ++result_.missing_grants;
        if (options_.allow_missing_grants) return;
        add({'b', write.id, write.resource,
             "a write was accepted with token " + std::to_string(write.token) +
                 ", which the history shows neither granted nor renewed"});
    }

    void report_unscanned_rows() {
        const auto skew_ms = options_.to ? std::nullopt : std::optional(options_.skew_ms);
        for (const auto& row : pg::find_unscanned_rows(session_, range(), skew_ms)) {
            if (!row.resource.starts_with(options_.resource_prefix.value_or(""))) continue;
            const char promise = row.event.starts_with("lease_") ? 'a' : row.event.starts_with("write_") ? 'b' : 'e';
            add({promise, row.id, row.resource,
                 row.event + (row.resource.empty() ? " without a resource" : " in the future: it was not checked")});
        }
    }

    protection_spans find_protection() {
        protection_spans out(bounds_.from_us);
        pg::guard_changes changes(session_, bounds_.to_us);
        for (auto rows = changes.next_chunk(); !rows.empty(); rows = changes.next_chunk()) {
            for (const auto& row : rows)
                out.add(row);
        }
        out.finish();
        return out;
    }

    pg::walk_range range() const { return {bounds_.from_us, bounds_.to_us, options_.resource_prefix}; }

    void compare_fences() {
        std::vector<pg::token_of_resource> tokens;
        tokens.reserve(fences_.size());
        for (const auto& expected : fences_)
            tokens.push_back({expected.resource, expected.token});
        const auto current = pg::find_fences(session_, tokens);
        for (const auto& expected : fences_) {
            const auto found = current.find(expected.resource);
            const std::int64_t fence = found == current.end() ? 0 : found->second.token;
            if (found != current.end() && found->second.unrecorded)
                add({'e', expected.id, expected.resource,
                     "it is the last that left a fence, " + std::to_string(expected.token) + "; the fence is " +
                         std::to_string(fence) + " now, and the row that raised it is missing"});
            if (fence >= expected.token || pg::is_repaired_after(session_, expected.resource, expected.id)) continue;
            add({'e', expected.id, expected.resource,
                 "it raised the fence to " + std::to_string(expected.token) + ", which is " + std::to_string(fence) +
                     " now, and no repair says why"});
        }
        fences_.clear();
    }

    pg::session& session_;
    const verify_options& options_;
    pg::walk_bounds bounds_;
    std::vector<generation_change> changes_;
    history_checker checker_;
    verification_result result_;
    std::vector<ungranted_write> ungranted_writes_;
    std::vector<ungranted_write> late_writes_;
    std::vector<last_fence> fences_;
};

/// A time among the options is wrong; the text names the option.
class wrong_time : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throws wrong_time.
pg::walk_bounds find_bounds(pg::session& session, const verify_options& options) {
    for (const auto& [name, time] : {std::pair("--from", options.from), std::pair("--to", options.to)}) {
        try {
            if (time) pg::find_bounds(session, time, std::nullopt);
        } catch (const pg::statement_failed& e) {
            // A data exception, or from PostgreSQL 14 on a time that is infinite.
            if (!e.error.sqlstate.starts_with("22") && e.error.sqlstate != "0A000") throw;
            throw wrong_time(std::string(name) + ": " + e.error.message);
        }
    }
    const auto bounds = pg::find_bounds(session, options.from, options.to);
    if (bounds.from_us && *bounds.from_us >= bounds.to_us)
        throw wrong_time(options.to ? "--from: has to be before --to" : "--from: has to be before the present time");
    return bounds;
}

}  // namespace

int verify(const postgres_config& database, const verify_options& options) {
    const auto fail = [](const std::string& reason) -> int {
        runtime::print_error("verify", reason);
        return could_not_run;
    };
    try {
        postgres_config settings = database;
        settings.statement_timeout = statement_timeout;
        pg::session session(settings);
        session.configure(settings);
        if (const auto schema = pg::check_schema(session, "fencing_auditor"); !schema)
            return fail(schema.error().detail);
        const auto started_at = std::chrono::steady_clock::now();
        const auto bounds = find_bounds(session, options);
        auto found = verification(session, options, bounds).run();
        found.took =
            std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started_at);
        std::cout << runtime::prepare_for_stdout(options.json ? render_json(found) : render_text(found)) << std::flush;
        return found.broken == 0 ? proved : broken;
    } catch (const wrong_time& e) {
        runtime::print_error("verify", e.what());
        return exit_usage;
    } catch (const pg::session_lost& e) {
        return fail(std::string("PostgreSQL can't be reached: ") + e.what());
    } catch (const pg::statement_failed& e) {
        return fail("PostgreSQL refused: " + e.error.message);
    } catch (const std::exception& e) {
        return fail(e.what());  // 1 would mean that the history is broken
    }
}

}  // namespace fencegate::admin
