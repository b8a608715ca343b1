#include <gateway/api/service/problems.hpp>

#include <gateway/http/codec/problem.hpp>

namespace fencegate::api {

boost::asio::awaitable<http::response> show_problem(gateway_services, http::request r) {
    auto page = http::explain_problem(r.path_parameters.at(0), r.header_list("accept"));
    if (!page) co_return http::problem_response(page.error(), r.request_id);
    co_return std::move(*page);
}

}  // namespace fencegate::api
