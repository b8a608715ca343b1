#include <gateway/admin/verify.hpp>

#include <gateway/admin/history_checker.hpp>
#include <gateway/admin/report.hpp>
#include <gateway/pg/history/history_walk.hpp>
#include <gateway/pg/schema/cluster.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <thread>

namespace fencegate::admin {
namespace {

using namespace std::chrono_literals;

/// Of one statement; each reads some thousand rows of an index.
constexpr auto statement_timeout = 60s;
constexpr std::size_t asked_at_once = 1'000;
/// How long events of leases may be on their way to the history, behind the writes made under them.
constexpr auto events_within = 10s;
constexpr auto ask_again_after = 500ms;

class progress {
  public:
    progress(std::int64_t rows, bool partial) : rows_(rows), partial_(partial), shown_(isatty(STDERR_FILENO) == 1) {}
    ~progress() {
        if (shown_) std::cerr << "\r\x1b[K";
    }
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

    void show(std::int64_t rows, const std::string& resource) {
        const auto now = std::chrono::steady_clock::now();
        if (!shown_ || now < next_) return;
        next_ = now + 200ms;
        constexpr int width = 24;
        std::cerr << "\r\x1b[K";
        if (!partial_ && rows_ > 0) {
            const auto part = std::min<std::int64_t>(width, rows * width / rows_);
            std::cerr << '[';
            for (int i = 0; i < width; ++i)
                std::cerr << (i < part ? '#' : '.');
            std::cerr << "] ";
        }
        std::cerr << rows << " rows, " << resource.substr(0, 40) << std::flush;
    }

  private:
    std::int64_t rows_;
    bool partial_;
    bool shown_;
    std::chrono::steady_clock::time_point next_{};
};

class run_state {
  public:
    run_state(pg::session& via, const verify_options& wanted, const pg::walk_bounds& bounds)
        : via_(via), wanted_(wanted), bounds_(bounds), checker_(wanted.skew_ms * 1'000) {}

    outcome run() {
        pg::history_walk walk(via_, range());
        {
            progress bar(bounds_.rows, wanted_.from || wanted_.to || wanted_.resource_prefix);
            for (auto rows = walk.next(); !rows.empty(); rows = walk.next()) {
                for (const auto& row : rows)
                    checker_.add(row);
                take(false);
                bar.show(checker_.counts().rows, rows.back().resource);
            }
        }
        checker_.finish();
        take(true);
        look_for_strays();
        ask_late();
        result_.counts = checker_.counts();
        result_.from_us = bounds_.from_us;
        result_.to_us = bounds_.to_us;
        return std::move(result_);
    }

  private:
    void add(finding f) {
        ++result_.broken;
        if (++result_.broken_by_promise[f.promise] <= findings_max) result_.findings.push_back(std::move(f));
    }

    void take(bool all) {
        for (auto& f : checker_.take_findings())
            add(std::move(f));
        std::ranges::move(checker_.take_unknown(), std::back_inserter(unknown_));
        std::ranges::move(checker_.take_fences(), std::back_inserter(fences_));
        if (all || unknown_.size() >= asked_at_once) ask_for_grants();
        if (all || fences_.size() >= asked_at_once) compare_fences();
    }

    static std::vector<unknown_token> not_granted(pg::session& via, std::vector<unknown_token> asked) {
        std::vector<pg::token_of_resource> tokens;
        tokens.reserve(asked.size());
        for (const auto& one : asked)
            tokens.push_back({one.resource, one.token});
        auto granted = pg::find_granted(via, tokens);
        std::ranges::sort(granted, std::greater{});
        for (const std::size_t index : granted)
            asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(index));
        return asked;
    }

    void ask_for_grants() {
        for (auto& one : not_granted(via_, std::exchange(unknown_, {}))) {
            // The newest may have their grant still in the buffer of a gateway.
            const bool may_come = one.at_us > bounds_.to_us - std::chrono::microseconds(events_within).count();
            if (may_come && late_.size() < asked_at_once) {
                late_.push_back(std::move(one));
            } else {
                missing(one);
            }
        }
    }

    void ask_late() {
        const auto end = std::chrono::steady_clock::now() + events_within;
        while (!late_.empty()) {
            late_ = not_granted(via_, std::move(late_));
            if (late_.empty() || std::chrono::steady_clock::now() >= end) break;
            std::this_thread::sleep_for(ask_again_after);
        }
        for (const auto& one : late_)
            missing(one);
    }

    void missing(const unknown_token& one) {
        ++result_.missing_grants;
        if (wanted_.allow_missing_grants) return;
        add({'b', one.id, one.resource,
             "a write was accepted with token " + std::to_string(one.token) +
                 ", which the history does not show granted"});
    }

    void look_for_strays() {
        const auto skew_ms = wanted_.to ? std::nullopt : std::optional(wanted_.skew_ms);
        for (const auto& row : pg::find_strays(via_, range(), skew_ms)) {
            if (!row.resource.starts_with(wanted_.resource_prefix.value_or(""))) continue;
            const char promise = row.event.starts_with("lease_") ? 'a' : row.event.starts_with("write_") ? 'b' : 'e';
            add({promise, row.id, row.resource,
                 row.event +
                     (row.resource.empty() ? " without a resource" : " in the future: it could not be judged")});
        }
    }

    pg::walk_range range() const { return {bounds_.from_us, bounds_.to_us, wanted_.resource_prefix}; }

    void compare_fences() {
        std::vector<pg::token_of_resource> last;
        last.reserve(fences_.size());
        for (const auto& one : fences_)
            last.push_back({one.resource, one.token});
        const auto now = pg::find_fences(via_, last);
        for (const auto& one : fences_) {
            const auto found = now.find(one.resource);
            const std::int64_t fence = found == now.end() ? 0 : found->second.token;
            if (found != now.end() && found->second.unrecorded)
                add({'e', one.id, one.resource,
                     "it is the last that left a fence, " + std::to_string(one.token) + "; the fence is " +
                         std::to_string(fence) + " now, and the row that raised it is missing"});
            if (fence >= one.token || pg::repaired_after(via_, one.resource, one.id)) continue;
            add({'e', one.id, one.resource,
                 "it raised the fence to " + std::to_string(one.token) + ", which is " + std::to_string(fence) +
                     " now, and no repair says why"});
        }
        fences_.clear();
    }

    pg::session& via_;
    const verify_options& wanted_;
    pg::walk_bounds bounds_;
    history_checker checker_;
    outcome result_;
    std::vector<unknown_token> unknown_;
    std::vector<unknown_token> late_;
    std::vector<last_fence> fences_;
};

}  // namespace

int verify(const postgres_config& database, const verify_options& wanted) {
    const auto give_up = [](const std::string& why) {
        std::cerr << "fencegate verify: " << why << "\n";
        return could_not_run;
    };
    try {
        postgres_config settings = database;
        settings.statement_timeout = statement_timeout;
        pg::session via(settings);
        via.configure(settings);
        if (const auto schema = pg::check_schema(via, "fencing_auditor"); !schema)
            return give_up(schema.error().detail);
        const auto begun = std::chrono::steady_clock::now();
        const auto bounds = pg::find_bounds(via, wanted.from, wanted.to);
        auto found = run_state(via, wanted, bounds).run();
        found.took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
        std::cout << (wanted.json ? render_json(found) : render_page(found)) << std::flush;
        return found.broken == 0 ? proved : broken;
    } catch (const pg::session_lost& e) {
        return give_up(std::string("PostgreSQL can't be reached: ") + e.what());
    } catch (const pg::statement_failed& e) {
        return give_up("PostgreSQL refused: " + e.error.message);
    } catch (const std::exception& e) {
        return give_up(e.what());  // 1 would say that the history is broken
    }
}

}  // namespace fencegate::admin
