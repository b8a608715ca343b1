#include <gateway/cli/listings.hpp>

#include <gateway/cli/duration.hpp>
#include <gateway/cli/fields.hpp>
#include <gateway/cli/output.hpp>

#include <boost/json.hpp>

#include <iostream>

namespace fencegate::cli {
namespace {

namespace json = boost::json;
using parameters = std::vector<std::pair<std::string, std::string>>;

/// `principal/owner`, as much of it as there is.
std::string who(const json::object& item) {
    const std::string principal = text(item, "principal");
    const std::string owner = text(item, "owner");
    if (principal.empty() || owner.empty()) return principal.empty() && owner.empty() ? "-" : principal + owner;
    return principal + "/" + owner;
}

std::vector<cell> lease_line(const json::object& lease) {
    const std::chrono::milliseconds left(number(lease, "remaining_ms").value_or(0));
    return {shown(lease, "resource"), who(lease), shown(lease, "fencing_token"),
            cell(format_duration(left), left < std::chrono::seconds(1) ? colour::yellow : colour::none),
            shown(lease, "hold_count")};
}

colour colour_of(std::string_view event) {
    if (event == "write_applied") return colour::green;
    if (event == "write_rejected" || event == "write_failed" || event == "lease_revoked") return colour::red;
    if (event == "lease_expired" || event == "lease_refused" || event == "node_quarantined") return colour::yellow;
    return colour::none;
}

std::vector<cell> history_line(const json::object& item) {
    const std::string event = text(item, "event");
    return {cell(shown(item, "at"), colour::faint),
            cell(event, colour_of(event)),
            shown(item, "resource"),
            shown(item, "fencing_token"),
            shown(item, "last_fencing_token"),
            who(item),
            shown(item, "detail")};
}

void list(const client& gateway, std::string_view path, parameters filters, std::size_t limit, table shown_as,
          const look& how, std::vector<cell> (*line_of)(const json::object&)) {
    const bool more = gateway.pages(path, std::move(filters), limit, [&](const json::array& items) {
        std::vector<std::vector<cell>> lines;
        for (const auto& item : items) {
            if (how.table)
                lines.push_back(line_of(item.as_object()));
            else
                std::cout << json::serialize(item) << "\n";
        }
        if (how.table) shown_as.print(lines);
        std::cout.flush();
    });
    if (more) std::cerr << "(the first " << limit << "; there are more, see --limit)\n";
}

table history_table(const look& how) {
    return {{{"at"},
             {"event"},
             {"resource", false, true},
             {"token", true},
             {"fence", true},
             {"who", false, true},
             {"detail", false, true}},
            std::cout,
            how};
}

parameters filters_of(const history_filter& wanted) {
    return {{"resource", wanted.resource},
            {"resource_prefix", wanted.prefix},
            {"event", wanted.event},
            {"owner", wanted.owner},
            {"principal", wanted.principal},
            {"token_min", wanted.token_min},
            {"token_max", wanted.token_max},
            {"trace_id", wanted.trace_id},
            {"write_id", wanted.write_id},
            {"from", wanted.from},
            {"to", wanted.to}};
}

}  // namespace

void list_leases(const client& gateway, const lease_filter& wanted, bool json_lines) {
    const look how = look_of_stdout(json_lines);
    table leases({{"resource", false, true}, {"holder", false, true}, {"token", true}, {"left", true}, {"holds", true}},
                 std::cout, how);
    list(gateway, "/v1/leases", {{"resource_prefix", wanted.prefix}}, wanted.limit, std::move(leases), how, lease_line);
}

void list_history(const client& gateway, const history_filter& wanted, bool json_lines) {
    const look how = look_of_stdout(json_lines);
    parameters filters = filters_of(wanted);
    filters.emplace_back("order", wanted.ascending ? "asc" : "");
    list(gateway, "/v1/history", std::move(filters), wanted.limit, history_table(how), how, history_line);
}

void follow_history(const client& gateway, const history_filter& wanted, bool json_lines) {
    const look how = look_of_stdout(json_lines);
    table events = history_table(how);
    gateway.follow(target_of("/v1/history/stream", filters_of(wanted)), [&](const stream_event& event) {
        if (how.table)
            events.print({history_line(json::parse(event.data).as_object())});
        else
            std::cout << event.data << "\n";
        return static_cast<bool>(std::cout.flush());
    });
}

}  // namespace fencegate::cli
