#include <gateway/admin/report.hpp>

#include <gateway/domain/guard_state.hpp>
#include <gateway/runtime/rfc3339.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>

#include <array>
#include <map>
#include <sstream>
#include <string_view>

namespace fencegate::admin {
namespace {

struct promise {
    char letter;
    std::string_view text;
};

/// The promise that only digests can show.
constexpr char digest_promise = 'f';

constexpr std::array<promise, 6> promises{{
    {'a', "tokens grow from grant to grant"},
    {'b', "a write is accepted with a granted token, never lower than one before it"},
    {'c', "of two leases that overlap, the older writes nothing after the newer"},
    {'d', "a write is refused as stale only below the fence"},
    {'e', "the fence falls only by a repair with a reason"},
    {digest_promise, "no row that a signed digest covers was changed, added or removed since"},
}};

std::string time_of(std::int64_t us) {
    return runtime::to_rfc3339(std::chrono::system_clock::time_point(std::chrono::microseconds(us)));
}

/// Returns when and why changes of a table were not checked, as one line of printable text.
std::string describe(const unprotected_span& span) {
    std::string out = span.table.empty() ? "every table" : span.table;
    out += " from " + (span.from_us ? time_of(*span.from_us) : "before the first recorded change");
    if (span.found_at_us) out += " at the earliest (found " + time_of(*span.found_at_us) + ")";
    out += span.to_us ? " to " + time_of(*span.to_us) : " on";
    switch (span.reason) {
        case open_reason::unprotected:
            out += ": not protected";
            break;
        case open_reason::observed:
            out += ": observe mode";
            break;
        case open_reason::fault:
            if (!span.faults.empty()) out += ": " + span.faults.front();
            if (span.faults.size() > 1) out += " (and " + std::to_string(span.faults.size() - 1) + " more faults)";
            break;
    }
    if (!span.principal.empty()) out += ", by " + span.principal;
    return runtime::make_printable(out);
}

void append_protection(std::ostream& out, const protection_spans& protection) {
    const auto& spans = protection.spans();
    if (!protection.recorded_since_us()) {
        out << "  protection     no change of it is recorded\n";
        return;
    }
    const auto count = static_cast<std::int64_t>(spans.size()) + protection.left_out();
    out << "  protection     of " << protection.protected_since().size() << " tables, recorded since "
        << time_of(*protection.recorded_since_us()) << "; "
        << (count == 0 ? "never interrupted" : std::to_string(count) + " times interrupted") << "\n";
    for (std::size_t i = 0; i < spans.size() && i < spans_in_text_max; ++i)
        out << "  unprotected    " << describe(spans[i]) << "\n";
    if (count > static_cast<std::int64_t>(spans_in_text_max))
        out << "                 and " << count - static_cast<std::int64_t>(spans_in_text_max) << " more; --json names "
            << protection_spans::spans_max << "\n";
}

void append_digests(std::ostream& out, const digest_result& digests) {
    out << "  digests        " << digests.digests << " compared with " << digests.rows << " rows";
    if (!digests.last_made_at.empty()) out << "; rows since " << digests.last_made_at << " are in none";
    out << "\n";
    if (digests.rotated_rows > 0)
        out << "                 " << digests.rotated_rows << " more rows were dropped by retention\n";
    if (digests.lost > 0)
        out << "                 " << digests.lost << " digests were lost by a change of the storage generation\n";
    if (!digests.erasures.empty()) {
        const digest_erasure& last = digests.erasures.back();
        out << "  erasures       " << digests.erasures.size() << " digests replaced; the last at " << last.made_at
            << " by " << runtime::make_printable(last.principal) << ": " << runtime::make_printable(last.reason)
            << "\n";
    }
}

/// Returns whether the guard did not check every change, or does not now.
bool has_open_times(const verification_result& found) {
    const auto& tables = found.guard_state.at("tables").as_array();
    return !found.protection.spans().empty() || !found.guard_state.at("faults").as_array().empty() ||
           count_tables(found.guard_state, "enforced") < tables.size();
}

/// Prints the state of the guard now, which may be known although its change is not in the history any more.
void append_guard_state(std::ostream& out, const boost::json::object& state) {
    out << "  guard now      tables: " << summarize_tables(state) << "; " << state.at("faults").as_array().size()
        << " faults\n";
    std::size_t printed = 0;
    for (const auto& each : state.at("tables").as_array()) {
        const auto& table = each.as_object();
        if (table.at("state") == "enforced" || ++printed > spans_in_text_max) continue;
        out << "                 " << runtime::make_printable(describe_table(table)) << "\n";
    }
}

}  // namespace

std::string render_text(const verification_result& found) {
    const history_counts& c = found.counts;
    std::ostringstream out;
    out << "fencegate verify: the history " << (found.from_us ? "from " + time_of(*found.from_us) + " " : "")
        << "up to " << time_of(found.to_us) << "\n\n";
    if (c.first_us)
        out << "  first row      " << time_of(*c.first_us) << "\n  last row       " << time_of(*c.last_us) << "\n";
    out << "  rows           " << c.rows << " of " << c.resources << " resources, in " << found.took.count() << " ms\n"
        << "  leases         " << c.grants << " granted, " << c.renewals << " renewals, " << c.ends
        << " ended by an event\n"
        << "  writes         " << c.writes << " accepted (" << c.bare_writes << " with tokens of another issuer, "
        << c.direct_writes << " of direct SQL), " << c.refusals << " refused\n"
        << "  fences         " << c.fences << " raised without a write, " << c.repairs << " of them repairs\n"
        << "  overlaps       " << c.overlaps << " pairs of leases, by their clocks\n";
    if (c.unrecorded_raises > 0)
        out << "  direct SQL     " << c.unrecorded_raises << " refusals by a fence that no row raised\n";
    if (found.missing_grants > 0)
        out << "  missing        " << found.missing_grants
            << " tokens of writes without a recorded grant: a gateway that was killed may have had it in its buffer\n";
    if (found.generation_changes > 0)
        out << "  failovers      " << found.generation_changes << " changes of the storage generation, which lost "
            << found.lost_grants << " recorded grants of writes\n";
    if (found.digests) append_digests(out, *found.digests);
    append_protection(out, found.protection);
    append_guard_state(out, found.guard_state);
    out << "\n";
    for (const auto& [letter, text] : promises) {
        if (letter == digest_promise && !found.digests) continue;
        out << "  " << (found.violations_by_promise.contains(letter) ? "BROKEN" : "holds ") << "  " << letter << "  "
            << text << "\n";
    }
    out << "\n";
    std::map<char, std::int64_t> counted;
    std::int64_t printed = 0;
    for (const auto& f : found.findings) {
        if (++counted[f.promise] > findings_in_text_max) continue;
        ++printed;
        if (f.promise == digest_promise)
            out << "  (f): " << runtime::make_printable(f.reason) << "\n";
        else
            out << "  row " << f.id << ", " << runtime::make_printable(f.resource) << " (" << f.promise
                << "): " << runtime::make_printable(f.reason) << "\n";
    }
    if (found.violations > printed)
        out << "  and " << found.violations - printed << " more; --json names up to " << findings_max
            << " of each promise\n";
    const bool open = has_open_times(found);
    const auto& limits = found.guard_state.at("limits").as_array();
    if (found.violations > 0)
        out << "\nBroken: " << found.violations << " findings.\n";
    else if (c.rows == 0)
        out << "Nothing to prove: the selected part has no row of a resource.\n";
    else if (open)
        out << "Proved for the times in which the guard checked every change.\n";
    else
        out << (limits.empty() ? "Proved.\n" : "Proved, except for what this installation does not notice.\n");
    if (open) out << "Not proved for the tables and times named above: the history says nothing of changes there.\n";
    for (const auto& limit : limits)
        out << "Not noticed by this installation: " << std::string_view(limit.as_string()) << ".\n";
    return out.str();
}

std::string render_json(const verification_result& found) {
    namespace json = boost::json;
    const history_counts& c = found.counts;
    const auto time = [](const std::optional<std::int64_t>& us) {
        return us ? json::value(json::string(time_of(*us))) : json::value(nullptr);
    };
    json::array findings;
    for (const auto& f : found.findings) {
        findings.push_back(json::object{
            {"promise", std::string(1, f.promise)}, {"id", f.id}, {"resource", f.resource}, {"detail", f.reason}});
    }
    json::array unprotected;
    for (const auto& span : found.protection.spans()) {
        unprotected.push_back(
            json::object{{"table", span.table.empty() ? json::value(nullptr) : json::value(span.table)},
                         {"reason", to_string(span.reason)},
                         {"from", time(span.from_us)},
                         {"found_at", time(span.found_at_us)},
                         {"to", time(span.to_us)},
                         {"principal", span.principal},
                         {"faults", json::value_from(span.faults)}});
    }
    json::array tables;
    for (const auto& [table, since] : found.protection.protected_since())
        tables.push_back(json::object{{"table", table}, {"protected_since", time(since)}});
    json::value digests;
    if (found.digests) {
        json::array erasures;
        for (const digest_erasure& each : found.digests->erasures) {
            if (erasures.size() == static_cast<std::size_t>(findings_max)) break;
            erasures.push_back({{"digest", each.number},
                                {"replaces", each.replaced},
                                {"made_at", each.made_at},
                                {"pseudonym", each.pseudonym},
                                {"principal", each.principal},
                                {"reason", each.reason}});
        }
        digests = json::object{{"compared", found.digests->digests},
                               {"rows", found.digests->rows},
                               {"rows_dropped_by_retention", found.digests->rotated_rows},
                               {"lost", found.digests->lost},
                               {"replaced", found.digests->erasures.size()},
                               {"erasures", std::move(erasures)},
                               {"last_made_at", found.digests->last_made_at}};
    }
    const json::object out{
        {"verdict", found.violations == 0 ? "proved" : "broken"},
        {"broken", found.violations},
        {"findings", std::move(findings)},
        {"findings_left_out", found.violations - static_cast<std::int64_t>(found.findings.size())},
        {"from", time(found.from_us)},
        {"to", time(found.to_us)},
        {"first_row", time(c.first_us)},
        {"last_row", time(c.last_us)},
        {"rows", c.rows},
        {"resources", c.resources},
        {"grants", c.grants},
        {"renewals", c.renewals},
        {"ends", c.ends},
        {"writes", c.writes},
        {"bare_writes", c.bare_writes},
        {"direct_writes", c.direct_writes},
        {"refusals", c.refusals},
        {"fences", c.fences},
        {"repairs", c.repairs},
        {"overlaps", c.overlaps},
        {"raised_by_direct_sql", c.unrecorded_raises},
        {"missing_grants", found.missing_grants},
        {"generation_changes", found.generation_changes},
        {"lost_grants", found.lost_grants},
        {"digests", std::move(digests)},
        {"protection_recorded_since", time(found.protection.recorded_since_us())},
        {"tables", std::move(tables)},
        {"unprotected", std::move(unprotected)},
        {"unprotected_left_out", found.protection.left_out()},
        {"guard", found.guard_state},
        {"took_ms", found.took.count()},
    };
    return json::serialize(out) + "\n";
}

}  // namespace fencegate::admin
