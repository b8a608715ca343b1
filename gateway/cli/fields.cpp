#include <gateway/cli/fields.hpp>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>

namespace fencegate::cli {

namespace json = boost::json;

json::object parse_object(std::string_view text) {
    boost::system::error_code ec;
    const json::value parsed = json::parse({text.data(), text.size()}, ec);
    const json::object* found = ec ? nullptr : parsed.if_object();
    return found == nullptr ? json::object() : *found;
}

std::string get_text(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains({name.data(), name.size()});
    return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

std::optional<std::int64_t> get_integer(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains({name.data(), name.size()});
    if (found == nullptr || !found->is_int64()) return std::nullopt;
    return found->get_int64();
}

std::optional<std::chrono::milliseconds> get_duration(const json::object& object, std::string_view name) {
    constexpr std::chrono::milliseconds longest = std::chrono::years{100};
    const auto count = get_integer(object, name);
    if (!count) return std::nullopt;
    return std::chrono::milliseconds(std::clamp<std::int64_t>(*count, -longest.count(), longest.count()));
}

std::string display_text(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains({name.data(), name.size()});
    if (found == nullptr || found->is_null()) return "-";
    const std::string out = found->is_string() ? std::string(found->get_string()) : json::serialize(*found);
    return out.empty() ? "-" : out;
}

}  // namespace fencegate::cli
