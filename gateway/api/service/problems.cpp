#include <gateway/api/service/problems.hpp>

#include <gateway/http/codec/problem.hpp>

namespace fencegate::api {

http::awaitable_response show_problem(const gateway_services&, http::request r) {
    co_return http::explain_problem(r.path_parameters.at(0), r.header_list("accept"));
}

}  // namespace fencegate::api
