#include <gateway/api/service/monitoring.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lock_failures.hpp>
#include <gateway/api/service/state.hpp>
#include <gateway/audit/storage_watch.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/metrics/registry.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <vector>

namespace fencegate::api {
namespace {

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

result<void> check_running(const gateway_services& services) {
    if (!services.stopping) return {};
    return make_failure(errc::shutting_down, "This gateway is about to stop; send requests to another one.");
}

result<void> check_leases(const gateway_services& services) {
    if (const auto running = check_running(services); !running) return running;
    if (!services.locks.has_quorum()) return make_no_quorum_failure(services.locks.nodes());
    return check_event_capacity(services);
}

boost::asio::awaitable<result<void>> check_writes(const gateway_services& services,
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

http::awaitable_response show_health(const gateway_services&, http::request) {
    co_return http::json_response(R"({"status":"ok"})");
}

http::awaitable_response show_readiness(const gateway_services& services, http::request r) {
    auto checked = check_leases(services);
    if (checked) checked = co_await check_writes(services, r.deadline);
    co_return render_readiness(checked);
}

http::awaitable_response show_lease_readiness(const gateway_services& services, http::request) {
    co_return render_readiness(check_leases(services));
}

http::awaitable_response show_write_readiness(const gateway_services& services, http::request r) {
    const auto checked = co_await check_writes(services, r.deadline);
    co_return render_readiness(checked);
}

http::awaitable_response show_metrics(const gateway_services& services, http::request) {
    http::response out;
    out.content_type = "text/plain; version=0.0.4; charset=utf-8";
    out.body = services.metric_registry.expose();
    co_return out;
}

}  // namespace fencegate::api
