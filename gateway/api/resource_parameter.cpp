#include <gateway/api/resource_parameter.hpp>

#include <optional>
#include <utility>

namespace fencegate::api {

result<lockcore::resource_name> read_resource(const http::request& r, const http::query_reader& query) {
    const auto text = r.path_parameters.empty() ? query.text("resource") : std::optional(r.path_parameters.front());
    if (!text) return invalid_field("resource", "is missing");
    auto resource = lockcore::resource_name::parse(*text);
    if (!resource) return invalid_field("resource", resource.error().detail);
    return std::move(*resource);
}

}  // namespace fencegate::api
