#include <gateway/api/service/state.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_lifecycle.hpp>
#include <gateway/api/routes.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/metrics/registry.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/database.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <lockcore/hmac_sha256.hpp>
#include <lockcore/lock_manager.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>

#include <algorithm>
#include <vector>

namespace fencegate::api {
namespace {

const lockcore::leak_report::node_leaks* find_node_leaks(const std::optional<metrics::leak_watch::finding>& leaks,
                                                         std::string_view node) {
    if (!leaks) return nullptr;
    const auto found = std::ranges::find(leaks->report.nodes, node, &lockcore::leak_report::node_leaks::name);
    return found == leaks->report.nodes.end() ? nullptr : &*found;
}

/// Renders leaked leases with example resources, so that an operator can find them.
void render_leaks(std::string& out, const std::optional<metrics::leak_watch::finding>& leaks) {
    if (!leaks) {
        out += "null";
        return;
    }
    std::vector<std::string> without_ttl;
    for (const auto& node : leaks->report.nodes) {
        for (const auto& name : node.examples) {
            if (std::ranges::find(without_ttl, name) == without_ttl.end()) without_ttl.push_back(name);
        }
    }
    http::object_writer item(out);
    item.text("at", runtime::to_rfc3339(leaks->at)).number("held_by_minority", leaks->report.held_by_minority);
    item.raw("without_ttl_examples", boost::json::serialize(boost::json::value_from(without_ttl)));
    item.raw("minority_examples", boost::json::serialize(boost::json::value_from(leaks->report.minority_examples)));
    item.end();
}

void render_guard(std::string& out, const std::optional<metrics::guard_watch::finding>& guard) {
    if (!guard) {
        out += "null";
        return;
    }
    constexpr std::size_t faults_max = 50;
    const auto& faults = guard->report.faults;
    const std::vector<std::string> named(
        faults.begin(), faults.begin() + static_cast<std::ptrdiff_t>(std::min(faults.size(), faults_max)));
    http::object_writer item(out);
    item.text("at", runtime::to_rfc3339(guard->at)).number("fault_count", faults.size());
    item.raw("faults", boost::json::serialize(boost::json::value_from(named)));
    item.end();
}

void render_key_ids(std::string& out, const std::vector<std::string>& key_ids) {
    http::object_writer item(out);
    item.text("signing", key_ids.front());
    item.raw("verification",
             boost::json::serialize(boost::json::value_from(std::vector(key_ids.begin() + 1, key_ids.end()))));
    item.end();
}

/// Probes have short timeouts, so "not ready" within a second is better than a late answer.
constexpr std::chrono::seconds ping_timeout{1};

failure make_no_quorum_failure(const std::vector<lockcore::node_status>& nodes) {
    failure f = make_failure(errc::no_quorum, "Fewer than a majority of the Redis nodes vote.");
    std::vector<lockcore::node_answer> answers;
    for (const auto& node : nodes)
        answers.push_back({node.name, node_state_name(node.state), node.detail, node.quarantine_left});
    f.facts["nodes"] = describe_answers(answers);
    return f;
}

result<void> check_running(const state_services& services) {
    if (!services.stopping) return {};
    return make_failure(errc::shutting_down, "This gateway is about to stop; send requests to another one.");
}

result<void> check_leases(const state_services& services) {
    if (const auto running = check_running(services); !running) return running;
    if (!services.locks.has_quorum()) return make_no_quorum_failure(services.locks.nodes());
    return check_event_capacity(services.events, services.limiter);
}

boost::asio::awaitable<result<void>> check_writes(const state_services& services,
                                                  std::chrono::steady_clock::time_point deadline) {
    const auto running = check_running(services);
    if (!running) co_return running;
    const auto storage = services.storage.check();
    if (!storage) co_return storage.error();
    const auto until = std::min(deadline, std::chrono::steady_clock::now() + ping_timeout);
    const auto answered = co_await services.database.ping(until);
    if (!answered) co_return answered.error();
    co_return result<void>{};
}

result<http::response> render_readiness(const result<void>& checked) {
    if (!checked) return checked.error();
    return http::json_response(R"({"status":"ready"})");
}

}  // namespace

const char* node_state_name(lockcore::node_state state) {
    switch (state) {
        case lockcore::node_state::voting:
            return "voting";
        case lockcore::node_state::quarantined:
            return "quarantined";
        case lockcore::node_state::misconfigured:
            return "misconfigured";
        case lockcore::node_state::identifying:
        case lockcore::node_state::unreachable:
            return "unreachable";
    }
    return "unreachable";
}

std::string render_nodes(const std::vector<lockcore::node_status>& nodes,
                         const std::optional<metrics::leak_watch::finding>& leaks,
                         const std::optional<metrics::guard_watch::finding>& guard,
                         const std::vector<std::string>& key_ids, lockcore::cell_id cell) {
    std::string out;
    out.reserve(64 + 320 * nodes.size());
    out += "{\"nodes\":[";
    for (const auto& node : nodes) {
        if (&node != nodes.data()) out += ',';
        http::object_writer item(out);
        item.text("name", node.name)
            .text("address", node.address)
            .text("state", node_state_name(node.state))
            .text_or_null("detail", node.detail);
        item.number("epoch", lockcore::value_of(node.admitted_epoch)).text_or_null("run_id", node.run_id);
        if (node.latency.count() > 0) {
            // Milliseconds as in every other member. Most answers take less than one, so microseconds are given too.
            item.number("latency_ms", std::chrono::round<std::chrono::milliseconds>(node.latency).count());
            item.number("latency_us", node.latency.count());
        } else {
            item.null("latency_ms").null("latency_us");
        }
        item.number("quarantine_left_ms", node.quarantine_left.count());
        const auto* seen = find_node_leaks(leaks, node.name);
        seen != nullptr && seen->complete ? item.number("keys_without_ttl", seen->without_ttl)
                                          : item.null("keys_without_ttl");
        item.end();
    }
    out += "],\"leaks\":";
    render_leaks(out, leaks);
    out += ",\"guard\":";
    render_guard(out, guard);
    out += ",\"signing_keys\":";
    render_key_ids(out, key_ids);
    out += ",\"cell\":" + std::to_string(cell) + '}';
    return out;
}

http::awaitable_response show_nodes(const state_services& services, http::request) {
    co_return http::json_response(render_nodes(services.locks.nodes(), services.leaks.latest(), services.guard.latest(),
                                               services.lease_keys.key_ids(), services.settings.protocol.cell));
}

std::string render_guard_state(const metrics::guard_watch::finding& found) {
    constexpr std::size_t faults_max = 50;
    const auto& state = found.report.state;
    boost::json::array faults = state.at("faults").as_array();
    const std::size_t fault_count = faults.size();
    faults.resize(std::min(fault_count, faults_max));
    return boost::json::serialize(boost::json::object{{"at", runtime::to_rfc3339(found.at)},
                                                      {"tables", state.at("tables")},
                                                      {"fault_count", fault_count},
                                                      {"faults", std::move(faults)},
                                                      {"limits", state.at("limits")},
                                                      {"storage_generation", state.at("storage_generation")},
                                                      {"compared_at", state.at("compared_at")}});
}

http::awaitable_response show_guard(const state_services& services, http::request) {
    const auto found = services.guard.latest();
    if (found) co_return http::json_response(render_guard_state(*found));
    co_return pg::unavailable("This gateway has not asked PostgreSQL for the state of the guard yet.");
}

http::awaitable_response show_rights(const state_services&, http::request r) {
    boost::json::array some;
    boost::json::array all;
    using enum scope;
    for (const scope each : {leases, writes, history, operate, bare_tokens}) {
        if (r.rights->require_for_some(each)) some.emplace_back(http::to_string(each));
        if (r.rights->require(each)) all.emplace_back(http::to_string(each));
    }
    co_return http::json_response(
        boost::json::serialize(boost::json::object{{"principal", r.principal},
                                                   {"scopes", std::move(some)},
                                                   {"scopes_for_all_resources", std::move(all)},
                                                   {"all_rows", r.rights->require_all_rows().has_value()}}));
}

http::awaitable_response show_health(const state_services&, http::request) {
    co_return http::json_response(R"({"status":"ok"})");
}

http::awaitable_response show_readiness(const state_services& services, http::request r) {
    auto checked = check_leases(services);
    if (checked) checked = co_await check_writes(services, r.deadline);
    co_return render_readiness(checked);
}

http::awaitable_response show_lease_readiness(const state_services& services, http::request) {
    co_return render_readiness(check_leases(services));
}

http::awaitable_response show_write_readiness(const state_services& services, http::request r) {
    const auto checked = co_await check_writes(services, r.deadline);
    co_return render_readiness(checked);
}

http::awaitable_response show_metrics(const state_services& services, http::request) {
    http::response out;
    out.content_type = "text/plain; version=0.0.4; charset=utf-8";
    out.body = services.metric_registry.expose();
    co_return out;
}

}  // namespace fencegate::api
