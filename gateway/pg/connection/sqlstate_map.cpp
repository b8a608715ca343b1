#include <gateway/pg/connection/sqlstate_map.hpp>

#include <gateway/domain/exact_number.hpp>

#include <spdlog/spdlog.h>
#include <boost/json/parse.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <mutex>
#include <utility>

namespace fencegate::pg {
namespace {

constexpr std::string_view detail_label = "\nDETAIL:  ";
constexpr std::string_view context_label = "\nCONTEXT:  ";
constexpr std::string_view constraint_label = "\nCONSTRAINT NAME:  ";
constexpr std::string_view location_label = "\nLOCATION:  ";
constexpr std::array<std::string_view, 12> labels{
    detail_label,       "\nHINT:  ",       "\nQUERY:  ",       context_label,
    "\nSCHEMA NAME:  ", "\nTABLE NAME:  ", "\nCOLUMN NAME:  ", "\nDATATYPE NAME:  ",
    constraint_label,   location_label,    "\nLINE ",          "\nserver closed the connection",
};

/// Returns where the next label begins; the text's size where there is none.
std::size_t next_label(std::string_view text, std::size_t begin) {
    auto end = text.size();
    for (const auto label : labels)
        end = std::min(end, text.find(label, begin));
    return end;
}

bool is_sqlstate(std::string_view text) {
    return text.size() == 5 && std::all_of(text.begin(), text.end(),
                                           [](unsigned char c) { return std::isdigit(c) || (c >= 'A' && c <= 'Z'); });
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
        text.remove_suffix(1);
    return text;
}

/// Returns the message without the position in the statement, which the caller never saw. libpq appends the position
/// where it does not have the statement's text.
std::string_view remove_position(std::string_view message) {
    constexpr std::string_view marker = " at character ";
    const auto found = message.rfind(marker);
    const bool at_end = found != std::string_view::npos &&
                        message.find_first_not_of("0123456789", found + marker.size()) == std::string_view::npos;
    return at_end ? message.substr(0, found) : message;
}

/// Returns the text between a label and the next one.
std::string section(std::string_view text, std::size_t label_at, std::string_view label) {
    if (label_at == std::string_view::npos) return {};
    const auto begin = label_at + label.size();
    return std::string(trimmed(text.substr(begin, next_label(text, begin) - begin)));
}

}  // namespace

server_error parse_server_error(std::string_view text) {
    server_error out;
    // "ERROR:  23514: the message". The severity is a word in the server's language.
    const auto severity_end = text.find(":  ");
    if (severity_end != std::string_view::npos && is_sqlstate(text.substr(severity_end + 3, 5)) &&
        text.substr(severity_end + 8, 2) == ": ") {
        const auto severity = text.substr(0, severity_end);
        out.fatal = severity.ends_with("FATAL") || severity.ends_with("PANIC");
        out.sqlstate = text.substr(severity_end + 3, 5);
        text.remove_prefix(severity_end + 10);
    }
    out.message = remove_position(trimmed(text.substr(0, next_label(text, 0))));
    out.detail = section(text, text.find(detail_label), detail_label);
    // The last of each: the message and the detail may contain any text.
    const auto context = section(text, text.rfind(context_label), context_label);
    out.parameter = parameter_of(context);
    out.in_code = names_code(context);
    out.constraint = section(text, text.rfind(constraint_label), constraint_label);
    out.origin = section(text, text.rfind(location_label), location_label);
    out.origin.resize(std::min(out.origin.size(), out.origin.find(',')));
    return out;
}

std::size_t parameter_of(std::string_view context) {
    // The outermost line. Lines of SQL and of functions, which have parameters of their own, contain quotes or brackets
    // before the parameter.
    const auto line = context.substr(context.rfind('\n') + 1);
    const auto sign = line.find('$');
    if (sign == std::string_view::npos || line.substr(0, sign).find_first_of("\"'(:") != std::string_view::npos)
        return 0;
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(line.data() + sign + 1, line.data() + line.size(), number);
    const auto rest = line.substr(static_cast<std::size_t>(end - line.data()));
    return error == std::errc{} && (rest.empty() || rest.starts_with(" = '")) ? number : 0;
}

bool names_code(std::string_view context) {
    return !context.empty() && (parameter_of(context) == 0 || context.find('\n') != std::string_view::npos);
}

namespace {

// 57014 is storage_unavailable and not write_conflict: a statement that exceeded statement_timeout did not wait for
// another writer (that ends with 55P03, because lock_timeout is shorter than statement_timeout), and repeating it at
// once would not help.
constexpr std::array<sqlstate_rule, 26> rules{{
    // code, meaning, show_message, ends_session
    {"08", errc::storage_unavailable, false, true},  // connection exceptions
    {"22", errc::unprocessable, true, false},        // a value that does not fit its type
    {"23", errc::constraint_violation, true, false},
    {"25", errc::internal_error, false, true},           // a transaction in a state that this code never leaves it in
    {"25006", errc::storage_unavailable, false, true},   // read-only: a standby answered
    {"25P03", errc::storage_unavailable, false, true},   // idle in transaction too long: the gateway was paused
    {"26", errc::storage_unavailable, false, true},      // a prepared statement is gone: the session was reset under us
    {"40", errc::write_conflict, false, false},          // serialization failure, deadlock
    {"42", errc::unprocessable, true, false},            // a name or a type that does not fit
    {"42501", errc::storage_unavailable, false, false},  // a grant is missing; but see to_failure
    {"44", errc::constraint_violation, true, false},     // a view's check option
    {"53", errc::storage_unavailable, false, false},     // disk full, out of memory, too many connections
    {"55P03", errc::write_conflict, false, false},       // lock_timeout
    {"57014", errc::storage_unavailable, false, false},  // statement_timeout
    {"57P01", errc::storage_unavailable, false, true},   // the server or this session was shut down
    {"57P02", errc::storage_unavailable, false, true},   // a crash of another session
    {"57P03", errc::storage_unavailable, false, true},   // starting up or shutting down
    {"57P05", errc::storage_unavailable, false, true},   // idle session timeout
    {"58", errc::storage_unavailable, false, false},     // the server's disk or system
    {"F0", errc::internal_error, false, false},          // the server's configuration file
    {"XX", errc::internal_error, false, false},          // a fault inside PostgreSQL
    {"P0001", errc::unprocessable, true, false},         // raise exception in an exposed function
    {"FG403", errc::resource_not_covered, false, false},
    {"FG412", errc::stale_fencing_token, false, false},
    {"FG428", errc::fencing_required, false, false},
    {"FG503", errc::storage_unavailable, false, false},  // the storage generation has changed
}};

const char* default_detail_of(errc code) {
    switch (code) {
        case errc::write_conflict:
            return "Another transaction held a lock or changed the same rows; nothing was changed. Repeat the call.";
        case errc::constraint_violation:
            return "A constraint of the database refused the change; nothing was changed.";
        case errc::resource_not_covered:
            return "A row belongs to a resource that the lease does not cover; nothing was changed.";
        case errc::stale_fencing_token:
            return "The fencing token is older than the resource's fence; nothing was changed.";
        case errc::fencing_required:
            return "The change needs a lease on the row's resource; nothing was changed.";
        case errc::unprocessable:
            return "The database refused the operation; nothing was changed.";
        default:
            return "The database reported a fault; nothing was changed.";
    }
}

bool is_raised_by_function(const server_error& error) {
    return error.origin == "exec_stmt_raise";
}

/// Whether insufficient_privilege means that row security or a function of the application refuses this call; else the
/// operator has not granted a privilege.
bool is_refusal_of_call(const server_error& error) {
    return error.sqlstate == "42501" && (error.origin == "ExecWithCheckOptions" || is_raised_by_function(error));
}

/// Whether the gateway's own role lacks a privilege.
bool is_missing_privilege(const server_error& error) {
    return error.sqlstate == "42501" && !is_refusal_of_call(error);
}

std::string sentence(std::string clause) {
    clause.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(clause.front())));
    return clause + "; nothing was changed.";
}

/// Copies from DETAIL, which `fencing` writes as JSON, only the members that the contract names.
void add_guard_facts(const std::string& detail, boost::json::object& facts) {
    boost::system::error_code error;
    const auto parsed = boost::json::parse(detail, error);
    if (error || !parsed.is_object() || !has_finite_numbers(parsed)) return;
    for (const auto name : {"resource", "fencing_token", "last_fencing_token", "cause", "name_fault"}) {
        const auto* value = parsed.as_object().if_contains(name);
        if (value && (value->is_string() || value->is_number())) facts[name] = *value;
    }
}

/// Returns the failure of a statement of a caller, whose code may name what is missing in `fencing`.
failure to_failure_of_operation(const server_error& error) {
    auto rule = rule_of(error.sqlstate);
    if (is_refusal_of_call(error)) {
        rule.meaning = errc::forbidden;
        rule.show_message = true;
    }
    if (rule.meaning == errc::internal_error && is_raised_by_function(error)) {
        rule.meaning = errc::unprocessable;
        rule.show_message = true;
    }
    failure out =
        make_failure(rule.meaning, rule.meaning == errc::storage_unavailable ? sentence(cause_of(error.sqlstate))
                                                                             : default_detail_of(rule.meaning));
    if (rule.show_message && !error.message.empty()) out.detail = error.message;
    out.facts["sqlstate"] = error.sqlstate;
    if (error.sqlstate.starts_with("23") && !error.constraint.empty()) out.facts["constraint"] = error.constraint;
    if (error.sqlstate.starts_with("FG")) add_guard_facts(error.detail, out.facts);
    const auto* resource = out.facts.if_contains("resource");
    if (rule.meaning == errc::resource_not_covered && resource && resource->is_string() &&
        !out.facts.contains("name_fault"))
        out.detail = "A row belongs to " + boost::json::value_to<std::string>(*resource) +
                     ", which the lease does not have for writing; nothing was changed.";
    if (rule.meaning == errc::storage_unavailable) out.retry_after = retry_after_unavailable;
    if (is_missing_privilege(error)) {
        out.retry_after.reset();
        out.may_be_repeated = false;
        out.facts["hint"] =
            "The gateway's log has PostgreSQL's message, which names the object. An operator has to grant the "
            "privilege to the gateway's role, or run fencegate migrate and expose the object again; until then every "
            "repeat fails too. Nothing was changed.";
    }
    if (rule.meaning == errc::write_conflict) out.retry_after = retry_after_conflict;
    return out;
}

}  // namespace

std::span<const sqlstate_rule> sqlstate_rules() {
    return rules;
}

sqlstate_rule rule_of(std::string_view sqlstate) {
    for (const auto length : {std::size_t{5}, std::size_t{2}}) {
        const auto key = sqlstate.substr(0, length);
        const auto found = std::find_if(rules.begin(), rules.end(), [&](const auto& rule) { return rule.code == key; });
        if (found != rules.end()) return *found;
    }
    // Cardinality, feature not supported, limits, and every code that an exposed function raises: the call is at fault.
    return {"", errc::unprocessable, true, false};
}

bool may_be_outdated(std::string_view sqlstate) {
    return sqlstate.starts_with("42") || sqlstate.starts_with("22") || sqlstate == "XX000";
}

bool is_outdated_statement(const server_error& error) {
    // PostgreSQL has no SQLSTATE for most of this. Its source names the function that reports it in every language.
    if (error.sqlstate == "XX000")
        return !is_raised_by_function(error);  // cache lookup failed, could not open relation
    if (error.sqlstate == "0A000") return error.origin == "RevalidateCachedQuery";
    constexpr std::array<std::string_view, 6> type_checks{
        "ExecEvalParamExtern",         "plpgsql_param_eval_generic", "plpgsql_param_eval_generic_ro",
        "plpgsql_param_eval_recfield", "CheckVarSlotCompatibility",  "ExecEvalWholeRowVar"};
    return error.sqlstate == "26000" ||
           (error.sqlstate == "42804" && std::ranges::find(type_checks, error.origin) != type_checks.end());
}

failure outdated_during_call() {
    return unavailable(
        "A type, table or function that the call uses was replaced meanwhile; nothing was changed. Repeat the call.");
}

bool is_guard_missing(const server_error& error) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> missing{
        {{"3F000", "fencing"}, {"42P01", "fencing."}, {"42883", "fencing."}}};  // in quotes of the server's language
    return std::ranges::any_of(missing, [&error](const auto& kind) {
        return error.sqlstate == kind.first && error.message.find(kind.second) != std::string::npos;
    });
}

failure unavailable_without_guard() {
    failure out = unavailable(
        "A part of the guard is missing in PostgreSQL: the schema fencing was dropped, or something in it; nothing was "
        "changed.");
    out.facts["cause"] = guard_missing;
    return out;
}

failure to_failure(const server_error& error) {
    if (!is_guard_missing(error)) return to_failure_of_operation(error);
    failure out = unavailable_without_guard();
    out.facts["sqlstate"] = error.sqlstate;
    return out;
}

failure to_failure(const server_error& error, const statement& failed) {
    failure out = to_failure_of_operation(error);
    const bool known = error.parameter > 0 && error.parameter <= failed.pointers.size();
    if (known && out.code == errc::unprocessable)
        out.errors.push_back({failed.pointers[error.parameter - 1], out.detail});
    if (error.sqlstate != "23502") return out;
    // PostgreSQL names the column, but of a domain only the domain. The only null of the request is the cause.
    std::size_t nulls = 0, last = 0;
    for (std::size_t i = 0; i < std::min(failed.pointers.size(), failed.parameters.size()); ++i) {
        if (failed.parameters[i]) continue;
        ++nulls;
        last = i;
    }
    if (nulls == 1) out.errors.push_back({failed.pointers[last], out.detail});
    return out;
}

std::optional<failure> refusal_of_role(const server_error& error) {
    const bool missing_role = error.sqlstate == "22023" && error.origin == "call_string_check_hook";
    if (!missing_role && !is_missing_privilege(error)) return std::nullopt;
    failure out = make_failure(errc::forbidden, "The database refuses this to the caller's role (" + error.message +
                                                    "); nothing was changed.");
    out.facts["sqlstate"] = error.sqlstate;
    return out;
}

failure stale_token(lockcore::fencing_token token, const fence_state& fence, std::string_view outcome) {
    std::string detail = "The fencing token is older than the resource's fence; ";
    if (fence.is_floor()) detail = "The fencing token was given before PostgreSQL was promoted or restored; ";
    failure out = make_failure(errc::stale_fencing_token, detail.append(outcome).append("."));
    out.facts["fencing_token"] = lockcore::value_of(token);
    if (fence.resource.empty()) return out;
    out.facts["resource"] = fence.resource;
    out.facts["last_fencing_token"] = fence.last_fencing_token;
    if (fence.is_floor()) out.facts["cause"] = generation_changed;
    return out;
}

std::string cause_of(std::string_view sqlstate) {
    struct known {
        std::string_view code, cause;
    };
    constexpr std::array<known, 14> known_causes{{
        {"25006", "PostgreSQL is read-only (a standby, or default_transaction_read_only is on)"},
        {"25P03", "the transaction was idle for too long"},
        {"42501",
         "the gateway's role lacks a privilege in PostgreSQL (SQLSTATE 42501; the gateway's log has the message)"},
        {"53100", "PostgreSQL's disk is full"},
        {"53200", "PostgreSQL is out of memory"},
        {"53300", "PostgreSQL has no connection left (max_connections)"},
        {"53400", "a limit that PostgreSQL's configuration sets is reached"},
        {"57014", "PostgreSQL did not finish within statement_timeout"},
        {"57P01", "PostgreSQL is shutting down, or an operator ended the session"},
        {"57P02", "PostgreSQL is recovering from a crash"},
        {"57P03", "PostgreSQL is starting up or shutting down"},
        {"58", "PostgreSQL reports an error of its files or operating system"},
        {"08", "the connection to PostgreSQL broke"},
        {"FG503", "PostgreSQL was promoted or restored, and the fences are being set above all older tokens"},
    }};
    for (const auto& entry : known_causes) {
        if (sqlstate.starts_with(entry.code)) return std::string(entry.cause);
    }
    return "PostgreSQL did not execute the statement";
}

void log_for_operator(const server_error& error) {
    const auto meaning = to_failure(error).code;
    if (meaning != errc::internal_error && meaning != errc::storage_unavailable) return;
    using clock = std::chrono::steady_clock;
    static std::mutex mutex;
    static std::map<std::string, clock::time_point> last_logged;  // by SQLSTATE
    {
        const std::lock_guard lock(mutex);
        const auto now = clock::now();
        if (last_logged.size() >= 64) last_logged.clear();
        auto& last = last_logged[error.sqlstate];
        if (last != clock::time_point{} && now < last + std::chrono::seconds{1}) return;
        last = now;
    }
    spdlog::error("PostgreSQL: {} {}", error.sqlstate, error.message);
}

failure unavailable_because(std::string cause) {
    return unavailable(sentence(std::move(cause)));
}

failure unavailable(std::string detail) {
    failure out = make_failure(errc::storage_unavailable, std::move(detail));
    out.retry_after = retry_after_unavailable;
    return out;
}

failure unavailable_during_change() {
    failure out = unavailable_because(cause_of("FG503"));
    out.facts["cause"] = generation_changed;
    return out;
}

std::string_view slug_of(errc code) {
    switch (code) {
        case errc::resource_not_covered:
            return "resource-not-covered";
        case errc::expectation_failed:
            return "expectation-failed";
        case errc::constraint_violation:
            return "constraint-violation";
        case errc::write_conflict:
            return "write-conflict";
        case errc::stale_fencing_token:
            return "stale-fencing-token";
        case errc::fencing_required:
            return "fencing-required";
        case errc::unprocessable:
            return "unprocessable";
        case errc::storage_unavailable:
            return "storage-unavailable";
        case errc::forbidden:
            return "forbidden";
        case errc::overloaded:
            return "overloaded";
        default:
            return "internal-error";
    }
}

}  // namespace fencegate::pg
