#include <gateway/api/service/metrics.hpp>

#include <gateway/metrics/registry.hpp>

namespace fencegate::api {

http::awaitable_response show_metrics(const gateway_services& services, http::request) {
    http::response out;
    out.content_type = "text/plain; version=0.0.4; charset=utf-8";
    out.body = services.metric_registry.expose();
    co_return out;
}

}  // namespace fencegate::api
