#include <gateway/cli/listings.hpp>

#include <gateway/cli/answers.hpp>
#include <gateway/cli/arguments.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/domain/guard_state.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/types.hpp>

#include <boost/json.hpp>

#include <cstdio>
#include <iostream>
#include <set>

namespace fencegate::cli {
namespace {

namespace json = boost::json;

/// How many leases and events list_resources reads.
constexpr std::size_t names_read_max = 1'000;
/// How many events list_history prints without a limit.
constexpr std::size_t history_limit = 100;
using parameters = std::vector<std::pair<std::string, std::string>>;

/// Returns `principal/owner`; one of them alone when the other is empty, `-` when both are.
std::string format_holder(const json::object& item) {
    const std::string principal = get_text(item, "principal");
    const std::string owner = get_text(item, "owner");
    if (principal.empty() || owner.empty()) return principal.empty() && owner.empty() ? "-" : principal + owner;
    return principal + "/" + owner;
}

std::vector<cell> make_lease_line(const json::object& lease) {
    const auto left = get_duration(lease, "remaining_ms").value_or(std::chrono::milliseconds{0});
    return {display_text(lease, "resource"),
            format_holder(lease),
            display_text(lease, "fencing_token"),
            cell(format_duration(left), left < std::chrono::seconds(1) ? colour::yellow : colour::none),
            display_text(lease, "hold_count"),
            lease.contains("mode") ? get_text(lease, "mode") : "exclusive"};
}

colour event_colour(std::string_view event) {
    if (event == "write_applied") return colour::green;
    if (event == "write_rejected" || event == "write_failed" || event == "lease_revoked" || event == "request_denied")
        return colour::red;
    if (event == "lease_expired" || event == "lease_refused" || event == "node_quarantined" ||
        event == "guard_changed" || event == "storage_generation_changed")
        return colour::yellow;
    return colour::none;
}

std::vector<cell> make_history_line(const json::object& item) {
    const std::string event = get_text(item, "event");
    return {cell(display_text(item, "at"), colour::faint),
            cell(event, event_colour(event)),
            display_text(item, "resource"),
            display_text(item, "fencing_token"),
            display_text(item, "last_fencing_token"),
            format_holder(item),
            display_text(item, "detail")};
}

colour operation_colour(std::string_view operation) {
    if (operation == "insert") return colour::green;
    return operation == "update" ? colour::none : colour::red;
}

std::vector<cell> make_change_line(const json::object& item) {
    const std::string operation = get_text(item, "operation");
    return {cell(display_text(item, "at"), colour::faint),
            display_text(item, "table"),
            cell(operation, operation_colour(operation)),
            display_text(item, "key"),
            display_text(item, "fencing_token"),
            display_text(item, "principal"),
            display_text(item, "old"),
            display_text(item, "new")};
}

void print_pages(const client& gateway, std::string_view path, parameters filters, std::size_t limit,
                 table output_table, const output_style& style, std::vector<cell> (*make_line)(const json::object&)) {
    const bool more = gateway.read_pages(path, std::move(filters), limit, [&](const json::array& items) {
        std::vector<std::vector<cell>> lines;
        for (const auto& item : items) {
            if (style.table)
                lines.push_back(make_line(item.as_object()));
            else
                std::cout << runtime::prepare_for_stdout(json::serialize(item)) << "\n";
        }
        if (style.table) output_table.print(lines);
        std::cout.flush();
    });
    if (more) std::cerr << "(the first " << limit << "; there are more, see --limit)\n";
}

table make_history_table(const output_style& style) {
    return {{{"at"},
             {"event"},
             {"resource", false, 3},
             {"token", true},
             {"fence", true},
             {"holder", false, 2},
             {"detail", false, 1}},
            std::cout,
            style};
}

std::string join(const std::vector<std::string>& names) {
    std::string out;
    for (const auto& name : names)
        out += (out.empty() ? "" : ",") + name;
    return out;
}

/// Returns the key of a row as a JSON object; empty if none is given.
std::string make_key(const std::vector<std::string>& columns) {
    json::object key;
    for (const auto& column : columns) {
        const auto sign = column.find('=');
        key[column.substr(0, sign)] = column.substr(sign + 1);
    }
    return key.empty() ? std::string() : json::serialize(key);
}

parameters make_filters(const history_filter& filter) {
    return {{"resource", filter.resource},   {"resource_prefix", filter.prefix},
            {"event", join(filter.events)},  {"owner", filter.owner},
            {"principal", filter.principal}, {"token_min", filter.token_min},
            {"token_max", filter.token_max}, {"trace_id", filter.trace_id},
            {"write_id", filter.write_id},   {"table", filter.table},
            {"column", filter.column},       {"key", make_key(filter.key)},
            {"from", filter.from},           {"to", filter.to}};
}

/// Reads the gateway's version from its metrics; empty if they do not contain it.
std::string read_version(const client& gateway) {
    http_request request;
    request.target = "/metrics";
    request.accept = "text/plain";
    const http_response response = gateway.call(std::move(request));
    constexpr std::string_view label = "fencegate_build_info{version=\"";
    const auto found = response.body.find(label);
    if (!response.is_success() || found == std::string::npos) return {};
    const auto begin = found + label.size();
    return response.body.substr(begin, response.body.find('"', begin) - begin);
}

colour state_colour(std::string_view state) {
    if (state == "voting") return colour::green;
    return state == "quarantined" ? colour::yellow : colour::red;
}

std::string format_latency(const json::object& node) {
    const auto us = get_integer(node, "latency_us");
    if (!us) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2fms", static_cast<double>(*us) / 1000);
    return text;
}

std::vector<cell> make_node_line(const json::object& node) {
    const std::string state = get_text(node, "state");
    const auto quarantine = get_duration(node, "quarantine_left_ms").value_or(std::chrono::milliseconds{0});
    const auto keys_without_ttl = get_integer(node, "keys_without_ttl");
    return {get_text(node, "name"),
            cell(state, state_colour(state)),
            display_text(node, "epoch"),
            format_latency(node),
            quarantine > std::chrono::milliseconds{0} ? format_duration(quarantine) : "-",
            cell(display_text(node, "keys_without_ttl"), keys_without_ttl.value_or(0) > 0 ? colour::red : colour::none),
            display_text(node, "detail")};
}

/// Returns which keys sign and verify lease ids at the gateway.
std::string describe_signing_keys(const json::object& keys) {
    std::string text = "lease ids are signed with " + get_text(keys, "signing");
    const json::array& others = keys.at("verification").as_array();
    for (const auto& other : others)
        text += (&other == others.begin() ? "; accepted too: " : ", ") + std::string(other.as_string());
    return runtime::make_printable(text);
}

/// Prints the state of the guard: a summary, then each table that is not enforced, and what can't be noticed.
void print_guard(const json::object& guard, const output_style& style) {
    const bool is_good = count_tables(guard, "open") == 0 && guard.at("fault_count") == 0;
    std::cout << "guard, tables: "
              << colourize(summarize_tables(guard), is_good ? colour::green : colour::red, style.colours)
              << ", faults: " << display_text(guard, "fault_count") << "\n";
    for (const auto& each : guard.at("tables").as_array()) {
        const auto& table = each.as_object();
        if (table.at("state") != "enforced")
            std::cout << "  " << runtime::make_printable(describe_table(table)) << "\n";
    }
    for (const auto& limit : guard.at("limits").as_array())
        std::cout << "  not noticed: " << runtime::make_printable(std::string(limit.as_string())) << "\n";
}

/// Shows the state of the guard, which a gateway that has just started does not know.
void show_guard(const client& gateway, const output_style& style) {
    http_request request;
    request.target = "/v1/guard";
    const http_response response = gateway.call(std::move(request));
    const json::object guard = response.is_success() ? parse_object(response.body) : json::object{};
    if (!style.table) {
        const json::object line{{"guard", guard.empty() ? json::value() : json::value(guard)}};
        std::cout << runtime::prepare_for_stdout(json::serialize(line)) << "\n";
    } else if (guard.empty()) {
        std::cout << "guard: not known" << std::endl;
        runtime::print_error("status", describe(response));
    } else {
        print_guard(guard, style);
    }
}

}  // namespace

void list_leases(const client& gateway, const lease_filter& filter, bool json_lines) {
    const output_style style = detect_output_style(json_lines);
    table leases(
        {{"resource", false, 2}, {"holder", false, 1}, {"token", true}, {"left", true}, {"holds", true}, {"mode"}},
        std::cout, style);
    print_pages(gateway, "/v1/leases", {{"resource_prefix", filter.prefix}}, filter.limit, std::move(leases), style,
                make_lease_line);
}

void list_resources(const client& gateway, const std::string& prefix) {
    std::set<std::string> names;
    for (const char* path : {"/v1/leases", "/v1/history"}) {
        gateway.read_pages(path, {{"resource_prefix", prefix}}, names_read_max, [&](const json::array& items) {
            for (const auto& item : items) {
                // An event may have any text, such as the name in a refused request; a name is one line.
                auto name = get_text(item.as_object(), "resource");
                if (lockcore::resource_name::parse(name)) names.insert(std::move(name));
            }
        });
    }
    for (const auto& name : names)
        std::cout << name << "\n";
}

void list_history(const client& gateway, const history_filter& filter, bool json_lines) {
    const output_style style = detect_output_style(json_lines);
    parameters filters = make_filters(filter);
    filters.emplace_back("order", filter.ascending ? "asc" : "");
    print_pages(gateway, "/v1/history", std::move(filters), filter.limit.value_or(history_limit),
                make_history_table(style), style, make_history_line);
}

void show_resource_at(const client& gateway, const history_filter& filter, bool json_lines) {
    http_request request;
    request.target = make_target("/v1/resources/" + runtime::percent_encode(filter.resource), {{"at", filter.at}});
    const http_response response = gateway.call(std::move(request));
    if (!response.is_success()) throw gateway_refusal(response);
    const output_style style = detect_output_style(json_lines);
    if (!style.table) {
        std::cout << runtime::prepare_for_stdout(response.body) << "\n";
        return;
    }
    const json::object then = parse_object(response.body);
    const auto print = [](std::string_view name, const std::string& text) {
        std::cout << name << runtime::make_printable(text) << "\n";
    };
    const json::object* lease = then.at("lease").if_object();
    print("holder:  ", lease == nullptr ? "nobody" : get_text(*lease, "principal") + " " + get_text(*lease, "owner"));
    if (lease != nullptr)
        print("token:   ", display_text(*lease, "fencing_token") + ", until " + get_text(*lease, "until"));
    print("fence:   ", display_text(then, "last_fencing_token"));
    print("read:    ", display_text(then, "last_read_token"));
    for (const auto& table : then.at("tables").is_array() ? then.at("tables").as_array() : json::array())
        print("guard:   ", get_text(table.as_object(), "table") + ": " + get_text(table.as_object(), "mode"));
    if (!then.at("rows").is_array()) return;
    for (const auto& row : then.at("rows").as_array())
        print("row:     ", get_text(row.as_object(), "table") + " " + json::serialize(row.at("values")));
    if (!then.at("rows_complete").as_bool()) print("row:     ", "there are more changes than were read");
}

void list_changes(const client& gateway, const history_filter& filter, bool json_lines) {
    const output_style style = detect_output_style(json_lines);
    table changes({{"at"},
                   {"table", false, 3},
                   {"operation"},
                   {"key", false, 3},
                   {"token", true},
                   {"principal", false, 2},
                   {"old", false, 1},
                   {"new", false, 1}},
                  std::cout, style);
    parameters filters = make_filters(filter);
    filters.emplace_back("order", filter.ascending ? "asc" : "");
    print_pages(gateway, "/v1/changes", std::move(filters), filter.limit.value_or(history_limit), std::move(changes),
                style, make_change_line);
}

void print_csv(const client& gateway, std::string_view path, const history_filter& filter) {
    parameters filters = make_filters(filter);
    filters.emplace_back("order", filter.ascending ? "asc" : "");
    filters.emplace_back("limit", filter.limit ? std::to_string(*filter.limit) : "");
    runtime::csv_filter filter_csv(runtime::is_stdout_terminal());
    gateway.download(make_target(path, filters), "text/csv",
                     [&](std::string_view piece) { std::cout << filter_csv.take(piece); });
}

void follow_history(const client& gateway, const history_filter& filter, bool json_lines) {
    const output_style style = detect_output_style(json_lines);
    table events = make_history_table(style);
    std::optional<place_file> place;
    std::string after = filter.after;
    if (!filter.place.empty()) {
        place.emplace(filter.place);
        if (auto kept = place->read(); !kept.empty()) after = std::move(kept);
        end_torn_line();
    }
    const auto print = [&](const stream_event& event) {
        if (style.table)
            events.print({make_history_line(json::parse(event.data).as_object())});
        else
            std::cout << runtime::prepare_for_stdout(event.data) << "\n";
        if (!std::cout.flush()) return false;
        if (place) place->write(event.id);
        return true;
    };
    gateway.follow_events(make_target("/v1/history/stream", make_filters(filter)), print, after);
}

int show_status(const client& gateway, bool json_lines) {
    http_request probe;
    probe.target = "/readyz";
    const http_response readiness = gateway.call(std::move(probe));
    const bool ready = readiness.is_success();
    const std::string version = read_version(gateway);
    const output_style style = detect_output_style(json_lines);
    if (style.table) {
        std::cout << gateway.address().origin() << gateway.address().base << "  "
                  << colourize(ready ? "ready" : "not ready", ready ? colour::green : colour::red, style.colours)
                  << (version.empty() ? "" : "  version " + runtime::make_printable(version)) << "\n";
    } else {
        json::object line{{"gateway", gateway.address().origin() + gateway.address().base}, {"ready", ready}};
        line["version"] = version.empty() ? json::value() : json::value(version);
        std::cout << runtime::prepare_for_stdout(json::serialize(line)) << "\n";
    }
    std::cout.flush();
    if (!ready) runtime::print_error("status", describe(readiness));

    const json::value response = gateway.get("/v1/nodes");
    std::vector<std::vector<cell>> lines;
    for (const auto& node : response.at("nodes").as_array()) {
        if (style.table)
            lines.push_back(make_node_line(node.as_object()));
        else
            std::cout << runtime::prepare_for_stdout(json::serialize(node)) << "\n";
    }
    if (style.table)
        table({{"node"},
               {"state"},
               {"epoch", true},
               {"latency", true},
               {"quarantine", true},
               {"no ttl", true},
               {"detail", false, 1}},
              std::cout, style)
            .print(lines);
    show_guard(gateway, style);
    const json::object& keys = response.at("signing_keys").as_object();
    const auto cell_number = get_integer(response.as_object(), "cell").value_or(0);
    if (style.table) {
        std::cout << describe_signing_keys(keys) << "\n";
        if (cell_number != 0) std::cout << "cell " << cell_number << "\n";
    } else {
        const json::object line{{"signing_keys", keys}, {"cell", cell_number}};
        std::cout << runtime::prepare_for_stdout(json::serialize(line)) << "\n";
    }
    return ready ? exit_ok : exit_failed;
}

}  // namespace fencegate::cli
