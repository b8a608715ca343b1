#pragma once

#include <gateway/domain/history_item.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::admin {

/// Why changes of a table were not checked, or not refused.
enum class open_reason {
    unprotected,  ///< unprotect() was called.
    observed,     ///< The mode is observe.
    fault,        ///< A check was missing, disabled or could be passed.
};

std::string_view to_string(open_reason reason);

/// A time in which changes of a table were not checked, or not refused. Times are in microseconds since 1970.
struct unprotected_span {
    std::string table;  ///< Empty: a fault that concerns no single table.
    open_reason reason = open_reason::unprotected;
    std::optional<std::int64_t> from_us;      ///< The earliest possible time; empty: before the first recorded change.
    std::optional<std::int64_t> found_at_us;  ///< When a gateway found it; empty: from_us is exact.
    std::optional<std::int64_t> to_us;        ///< Empty: at the end of the verified time it was still so.
    std::string principal;                    ///< Who made the change; empty: not known.
    std::vector<std::string> faults;          ///< The first faults_max of them.
};

/// Replays the changes of the guard, and returns when tables that had been protected were not.
///
/// Limits: keeps spans_max spans, and counts further ones.
class protection_spans {
  public:
    static constexpr std::size_t spans_max = 1'000;
    static constexpr std::size_t faults_max = 20;

    /// `from_us`: leaves out spans that ended before.
    explicit protection_spans(std::optional<std::int64_t> from_us) : from_us_(from_us) {}

    /// Adds the next change; changes are ordered by time, then id.
    void add(const guard_change& change);
    /// To be called after the last change: adds the spans that have not ended.
    void finish();

    /// Returns the spans, in the order in which they ended; those that have not ended come last.
    const std::vector<unprotected_span>& spans() const { return spans_; }
    std::int64_t left_out() const { return left_out_; }
    /// Returns each table that was ever protected, and since when; empty: since before the first recorded change.
    const std::map<std::string, std::optional<std::int64_t>>& protected_since() const { return protected_since_; }
    /// Returns the time of the first recorded change.
    std::optional<std::int64_t> recorded_since_us() const { return recorded_since_us_; }

  private:
    using open_key = std::pair<std::string, open_reason>;

    unprotected_span& open(const guard_change& change, open_reason reason, std::optional<std::int64_t> from_us);
    void close(const std::string& table, open_reason reason, std::int64_t at_us);
    /// Continues what is known of a table under its new name.
    void rename(const std::string& before, const std::string& table);
    void keep(unprotected_span span);

    std::optional<std::int64_t> from_us_;
    std::optional<std::int64_t> recorded_since_us_;
    std::map<std::string, std::optional<std::int64_t>> protected_since_;
    std::map<open_key, unprotected_span> open_;
    std::map<std::string, std::set<std::string>> open_faults_;  ///< By table.
    std::vector<unprotected_span> spans_;
    std::int64_t left_out_ = 0;
};

}  // namespace fencegate::admin
