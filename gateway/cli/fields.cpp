#include <gateway/cli/fields.hpp>

#include <boost/json/serialize.hpp>

namespace fencegate::cli {

namespace json = boost::json;

std::string get_text(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains({name.data(), name.size()});
    return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

std::optional<std::int64_t> get_integer(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains({name.data(), name.size()});
    if (found == nullptr || !found->is_int64()) return std::nullopt;
    return found->get_int64();
}

std::string display_text(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains({name.data(), name.size()});
    if (found == nullptr || found->is_null()) return "-";
    const std::string out = found->is_string() ? std::string(found->get_string()) : json::serialize(*found);
    return out.empty() ? "-" : out;
}

}  // namespace fencegate::cli
