#include <gateway/api/service/health.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/service/nodes.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <boost/json/array.hpp>

namespace fencegate::api {
namespace {

/// A probe asks often and gives up soon: better "not ready" in a second than no answer in ten.
constexpr std::chrono::seconds ping_timeout{1};

failure no_quorum(const std::vector<lockcore::node_status>& nodes) {
    failure f = make_failure(errc::no_quorum, "Fewer than a majority of the Redis nodes vote.");
    boost::json::array answers;
    for (const auto& node : nodes)
        answers.push_back({{"name", node.name}, {"answer", state_word(node.state)}});
    f.facts["nodes"] = std::move(answers);
    return f;
}

result<void> check_leases(services with) {
    if (!with.locks.has_quorum()) return no_quorum(with.locks.nodes());
    return check_room_for_leases(with);
}

boost::asio::awaitable<result<void>> check_writes(services with, std::chrono::steady_clock::time_point deadline) {
    const auto until = std::min(deadline, std::chrono::steady_clock::now() + ping_timeout);
    const auto answered = co_await with.database.ping(until);
    if (!answered) co_return answered.error();
    co_return result<void>{};
}

http::response readiness(const result<void>& checked, const http::request& r) {
    if (!checked) return http::problem_response(checked.error(), r.request_id);
    return http::json_response(R"({"status":"ready"})");
}

}  // namespace

boost::asio::awaitable<http::response> show_health(services, http::request) {
    co_return http::json_response(R"({"status":"ok"})");
}

boost::asio::awaitable<http::response> show_readiness(services with, http::request r) {
    auto checked = check_leases(with);
    if (checked) checked = co_await check_writes(with, r.deadline);
    co_return readiness(checked, r);
}

boost::asio::awaitable<http::response> show_lease_readiness(services with, http::request r) {
    co_return readiness(check_leases(with), r);
}

boost::asio::awaitable<http::response> show_write_readiness(services with, http::request r) {
    const auto checked = co_await check_writes(with, r.deadline);
    co_return readiness(checked, r);
}

}  // namespace fencegate::api
