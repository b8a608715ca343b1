#include <gateway/api/service/guard.hpp>

#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/runtime/rfc3339.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>

namespace fencegate::api {

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
                                                      {"compared_at", state.at("compared_at")}});
}

http::awaitable_response show_guard(const gateway_services& services, http::request) {
    const auto found = services.guard.latest();
    if (found) co_return http::json_response(render_guard_state(*found));
    co_return pg::unavailable("This gateway has not asked PostgreSQL for the state of the guard yet.");
}

}  // namespace fencegate::api
