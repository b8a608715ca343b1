#include <gateway/api/addressing.hpp>

#include <charconv>
#include <optional>
#include <utility>

namespace fencegate::api {

failure other_cell_failure(std::string_view subject, lockcore::cell_id named, lockcore::cell_id own) {
    failure out = make_failure(errc::misdirected_request, lockcore::describe_other_cell(subject, named, own));
    out.facts["named_cell"] = named;
    return out;
}

result<void> check_cell(const http::request& r, lockcore::cell_id own) {
    if (!r.has_header("fencing-cell")) return {};
    const std::string text = r.header_list("fencing-cell");  // two of them are no number
    lockcore::cell_id named = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), named);
    if (error != std::errc{} || end != text.data() + text.size())
        return invalid_field("Fencing-Cell", "has to be the number of a cell, 0 to 65535");
    if (named != own) return other_cell_failure("The header Fencing-Cell", named, own);
    return {};
}

result<lockcore::resource_name> read_resource(const http::request& r, const http::query_reader& query) {
    const auto text = r.path_parameters.empty() ? query.text("resource") : std::optional(r.path_parameters.front());
    if (!text) return invalid_field("resource", "is missing");
    auto resource = lockcore::resource_name::parse(*text);
    if (!resource) return invalid_field("resource", resource.error().detail);
    return std::move(*resource);
}

}  // namespace fencegate::api
