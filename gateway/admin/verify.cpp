#include <gateway/admin/commands.hpp>

#include <gateway/admin/history_checker.hpp>
#include <gateway/admin/report.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/pg/history/history_walk.hpp>
#include <gateway/pg/schema/cluster.hpp>
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
/// Tokens that one query looks up.
constexpr std::size_t tokens_per_query = 1'000;
/// A write may be in the history so much earlier than the grant of its lease, which waits in the buffer of a gateway.
constexpr auto grant_delay_max = 10s;
/// Writes without a grant whose grants are awaited; those of further writes count as missing at once.
constexpr std::size_t late_writes_max = 1'000;
constexpr auto retry_interval = 500ms;

/// Returns whether the write was recorded so shortly before a time that its grant may not have been recorded by then.
bool may_precede_grant(const ungranted_write& write, std::int64_t recorded_until_us) {
    return write.at_us > recorded_until_us - std::chrono::microseconds(grant_delay_max).count();
}

/// Shows the progress if standard error is a terminal.
class progress_bar {
  public:
    /// `rows`: about how many the whole history has. `reads_all`: false if only a part of it is read, which may be of
    /// any size.
    progress_bar(std::int64_t rows, bool reads_all)
        : rows_(rows), reads_all_(reads_all), shown_(isatty(STDERR_FILENO) == 1) {}
    ~progress_bar() {
        if (shown_) std::cerr << "\r\x1b[K";
    }
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;

    /// In: `rows_read`, and the resource of the last one.
    void show(std::int64_t rows_read, const std::string& resource) {
        const auto now = std::chrono::steady_clock::now();
        if (!shown_ || now < next_update_) return;
        next_update_ = now + 200ms;
        constexpr int width = 24;
        constexpr std::size_t name_width = 40;
        std::cerr << "\r\x1b[K";
        if (reads_all_ && rows_ > 0) {
            const auto filled = std::min<std::int64_t>(width, rows_read * width / rows_);
            std::cerr << '[';
            for (int i = 0; i < width; ++i)
                std::cerr << (i < filled ? '#' : '.');
            std::cerr << "] ";
        }
        std::cerr << rows_read << " rows, " << runtime::truncate_text(runtime::make_printable(resource), name_width)
                  << std::flush;
    }

  private:
    std::int64_t rows_;
    bool reads_all_;
    bool shown_;
    std::chrono::steady_clock::time_point next_update_{};
};

/// One run over the history: feeds the history_checker with its rows, and asks PostgreSQL what the rows of one resource
/// do not show: whether a token was ever granted, and the fences of today.
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
            const bool reads_all = !options_.from && !options_.to && !options_.resource_prefix;
            progress_bar bar(bounds_.rows, reads_all);
            for (auto rows = walk.next_chunk(); !rows.empty(); rows = walk.next_chunk()) {
                for (const auto& row : rows)
                    checker_.add(row);
                take_results();
                if (ungranted_writes_.size() >= tokens_per_query) check_grants();
                if (fences_.size() >= tokens_per_query) compare_fences();
                bar.show(checker_.counts().rows, rows.back().resource);
            }
        }
        checker_.finish();
        take_results();
        check_grants();
        compare_fences();
        report_unscanned_rows();
        await_late_grants();
        if (!options_.digests.file.empty()) {
            result_.digests = check_digests(session_, options_.digests);
            for (auto& f : result_.digests->findings)
                report(std::move(f));
        }
        result_.protection = replay_guard_changes();
        result_.guard_state = pg::read_guard_state(session_);
        result_.counts = checker_.counts();
        result_.generation_changes = static_cast<std::int64_t>(changes_.size());
        result_.from_us = bounds_.from_us;
        result_.to_us = bounds_.to_us;
        return std::move(result_);
    }

  private:
    /// Counts a violation, and lists it unless its promise has findings_max already.
    void report(finding f) {
        ++result_.violations;
        if (++result_.violations_by_promise[f.promise] <= findings_max) result_.findings.push_back(std::move(f));
    }

    void take_results() {
        for (auto& f : checker_.take_findings())
            report(std::move(f));
        std::ranges::move(checker_.take_ungranted_writes(), std::back_inserter(ungranted_writes_));
        std::ranges::move(checker_.take_fences(), std::back_inserter(fences_));
    }

    /// Removes the writes for whose tokens the history has a grant, of whatever time.
    void remove_granted(std::vector<ungranted_write>& writes) {
        std::vector<pg::token_of_resource> tokens;
        tokens.reserve(writes.size());
        for (const auto& write : writes)
            tokens.push_back({write.resource, write.token});
        auto granted = pg::find_granted(session_, tokens);
        std::ranges::sort(granted, std::greater{});  // the last first, so that the other indexes stay right
        for (const std::size_t index : granted)
            writes.erase(writes.begin() + static_cast<std::ptrdiff_t>(index));
    }

    void check_grants() {
        auto writes = std::exchange(ungranted_writes_, {});
        remove_granted(writes);
        for (auto& write : writes) {
            if (may_precede_grant(write, bounds_.to_us) && late_writes_.size() < late_writes_max) {
                late_writes_.push_back(std::move(write));
            } else {
                report_missing_grant(write);
            }
        }
    }

    /// Waits until the grants of the late writes are recorded, for grant_delay_max at most.
    void await_late_grants() {
        const auto end = std::chrono::steady_clock::now() + grant_delay_max;
        while (!late_writes_.empty()) {
            remove_granted(late_writes_);
            if (late_writes_.empty() || std::chrono::steady_clock::now() >= end) break;
            std::this_thread::sleep_for(retry_interval);
        }
        for (const auto& write : late_writes_)
            report_missing_grant(write);
    }

    /// Returns whether a failover may have lost the grant: PostgreSQL then lost what it had recorded last, and the
    /// write is one of the last before the failover. A token from after the failover is not below its floor.
    bool may_be_lost(const ungranted_write& write) const {
        const auto change = std::ranges::upper_bound(changes_, write.id, {}, &generation_change::id);
        return change != changes_.end() && write.token < change->floor &&
               may_precede_grant(write, change->last_write_at_us);
    }

    void report_missing_grant(const ungranted_write& write) {
        if (may_be_lost(write)) {
            ++result_.lost_grants;
            return;
        }
        ++result_.missing_grants;
        if (options_.allow_missing_grants) return;
        report({'b', write.id, write.resource,
                "a write was accepted with token " + std::to_string(write.token) +
                    ", which the history shows neither granted nor renewed"});
    }

    /// Returns the promise that rows of the event are evidence for.
    static char promise_of(std::string_view event) {
        if (event.starts_with("lease_")) return 'a';
        if (event.starts_with("write_")) return 'b';
        return 'e';
    }

    /// Reports the rows that the walk over the resources has not read.
    void report_unscanned_rows() {
        // Only a run up to the present can tell that a row is in the future.
        const auto skew_ms = options_.to ? std::nullopt : std::optional(options_.skew_ms);
        for (const auto& row : pg::find_unscanned_rows(session_, range(), skew_ms)) {
            if (!row.resource.starts_with(options_.resource_prefix.value_or(""))) continue;
            const char* fault = row.resource.empty() ? " without a resource" : " in the future: it was not checked";
            report({promise_of(row.event), row.id, row.resource, row.event + fault});
        }
    }

    /// Returns when tables that had been protected were not.
    protection_spans replay_guard_changes() {
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

    /// Compares the fences that the rows of each resource lead to with those that PostgreSQL has now.
    void compare_fences() {
        std::vector<pg::token_of_resource> tokens;
        tokens.reserve(fences_.size());
        for (const auto& expected : fences_)
            tokens.push_back({expected.resource, expected.token});
        const auto current = pg::find_fences(session_, tokens);
        for (const auto& expected : std::exchange(fences_, {})) {
            const auto found = current.find(expected.resource);
            const pg::current_fence fence = found == current.end() ? pg::current_fence() : found->second;
            if (fence.unrecorded)
                report({'e', expected.id, expected.resource,
                        "it is the last that left a fence, " + std::to_string(expected.token) + "; the fence is " +
                            std::to_string(fence.token) + " now, and the row that raised it is missing"});
            const bool has_fallen = fence.token < expected.token;
            if (has_fallen && !pg::is_repaired_after(session_, expected.resource, expected.id))
                report({'e', expected.id, expected.resource,
                        "it raised the fence to " + std::to_string(expected.token) + ", which is " +
                            std::to_string(fence.token) + " now, and no repair says why"});
        }
    }

    pg::session& session_;
    const verify_options& options_;
    pg::walk_bounds bounds_;
    std::vector<generation_change> changes_;
    history_checker checker_;
    verification_result result_;
    std::vector<ungranted_write> ungranted_writes_;  ///< Not looked up yet.
    std::vector<ungranted_write> late_writes_;       ///< Looked up; their grants may still arrive.
    std::vector<last_fence> fences_;                 ///< Not compared yet.
};

/// A time among the options is wrong; the text names the option.
class wrong_time : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Converts the times of the options. Throws wrong_time.
pg::walk_bounds find_bounds(pg::session& session, const verify_options& options) {
    // First each time alone, so that the error can name its option.
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
    // Not exit_failed: 1 means that the history is broken.
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
        return found.violations == 0 ? proved : broken;
    } catch (const wrong_time& e) {
        runtime::print_error("verify", e.what());
        return exit_usage;
    } catch (const pg::session_lost& e) {
        return fail(std::string("PostgreSQL can't be reached: ") + e.what());
    } catch (const pg::statement_failed& e) {
        return fail("PostgreSQL refused: " + e.error.message);
    } catch (const std::exception& e) {
        return fail(e.what());
    }
}

}  // namespace fencegate::admin
