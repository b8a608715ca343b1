#include <gateway/api/health.hpp>

#include <gateway/api/nodes.hpp>
#include <gateway/http/json_io.hpp>
#include <gateway/http/problem.hpp>
#include <gateway/pg/pool.hpp>

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

}  // namespace

boost::asio::awaitable<http::response> show_health(services, http::request) {
    co_return http::json_response(R"({"status":"ok"})");
}

boost::asio::awaitable<http::response> show_readiness(services with, http::request r) {
    if (!with.locks.has_quorum()) co_return http::problem_response(no_quorum(with.locks.nodes()), r.request_id);
    const auto until = std::min(r.deadline, std::chrono::steady_clock::now() + ping_timeout);
    const auto answered = co_await with.database.ping(until);
    if (!answered) co_return http::problem_response(answered.error(), r.request_id);
    co_return http::json_response(R"({"status":"ready"})");
}

}  // namespace fencegate::api
