#include <gateway/cli/status.hpp>

#include <gateway/app.hpp>
#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/output.hpp>

#include <boost/json.hpp>

#include <cstdio>
#include <iostream>

namespace fencegate::cli {
namespace {

namespace json = boost::json;

/// As the metrics tell it; empty if they do not.
std::string version_of(const client& gateway) {
    request what;
    what.target = "/metrics";
    what.accept = "text/plain";
    const answer got = gateway.call(std::move(what));
    constexpr std::string_view label = "fencegate_build_info{version=\"";
    const auto at = got.body.find(label);
    if (!got.ok() || at == std::string::npos) return {};
    const auto begin = at + label.size();
    return got.body.substr(begin, got.body.find('"', begin) - begin);
}

colour colour_of(std::string_view state) {
    if (state == "voting") return colour::green;
    return state == "quarantined" ? colour::yellow : colour::red;
}

std::string latency_of(const json::object& node) {
    const auto us = number(node, "latency_us");
    if (!us) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2fms", static_cast<double>(*us) / 1000);
    return text;
}

std::vector<cell> line_of(const json::object& node) {
    const std::string state = text(node, "state");
    const auto quarantine = number(node, "quarantine_left_ms").value_or(0);
    const auto endless = number(node, "keys_without_ttl");
    return {text(node, "name"),
            cell(state, colour_of(state)),
            shown(node, "epoch"),
            latency_of(node),
            quarantine > 0 ? format_duration(std::chrono::milliseconds(quarantine)) : "-",
            cell(shown(node, "keys_without_ttl"), endless.value_or(0) > 0 ? colour::red : colour::none),
            shown(node, "detail")};
}

}  // namespace

int show_status(const client& gateway, bool json_lines) {
    request probe;
    probe.target = "/readyz";
    const answer readiness = gateway.call(std::move(probe));
    const bool ready = readiness.ok();
    const std::string version = version_of(gateway);
    const look how = look_of_stdout(json_lines);
    if (how.table) {
        std::cout << gateway.at().origin() << gateway.at().base << "  "
                  << painted(ready ? "ready" : "not ready", ready ? colour::green : colour::red, how.colours)
                  << (version.empty() ? "" : "  version " + version) << "\n";
    } else {
        json::object line{{"gateway", gateway.at().origin() + gateway.at().base}, {"ready", ready}};
        line["version"] = version.empty() ? json::value() : json::value(version);
        std::cout << json::serialize(line) << "\n";
    }
    std::cout.flush();
    if (!ready) std::cerr << "fencegate status: " << describe(readiness) << "\n";

    const json::value answered = gateway.get("/v1/nodes");
    std::vector<std::vector<cell>> lines;
    for (const auto& node : answered.at("nodes").as_array()) {
        if (how.table)
            lines.push_back(line_of(node.as_object()));
        else
            std::cout << json::serialize(node) << "\n";
    }
    if (how.table) {
        table({{"node"},
               {"state"},
               {"epoch", true},
               {"latency", true},
               {"quarantine", true},
               {"no ttl", true},
               {"detail", false, true}},
              std::cout, how)
            .print(lines);
    }
    return ready ? exit_ok : exit_failed;
}

}  // namespace fencegate::cli
