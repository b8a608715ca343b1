#include <gateway/cli/status.hpp>

#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/output.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/domain/guard_state.hpp>
#include <gateway/runtime/terminal.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json.hpp>

#include <cstdio>
#include <iostream>

namespace fencegate::cli {
namespace {

namespace json = boost::json;

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
