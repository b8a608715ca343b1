#include <gateway/cli/answers.hpp>

#include <lockcore/encoding.hpp>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

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

void event_reader::add(std::string_view piece) {
    if (pending_.size() + current_.data.size() + piece.size() > pending_max)
        throw std::length_error("the event stream contains an event of more than 1 MiB");
    pending_ += piece;
}

std::optional<stream_event> event_reader::next() {
    for (auto end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) {
            auto complete = std::exchange(current_, {});
            last_id_ = id_;
            complete.id = id_;
            if (std::exchange(has_data_, false)) return complete;
            continue;
        }
        const auto colon = line.find(':');
        const std::string_view field = std::string_view(line).substr(0, colon);
        std::string_view value =
            colon == std::string::npos ? std::string_view() : std::string_view(line).substr(colon + 1);
        if (value.starts_with(' ')) value.remove_prefix(1);
        if (field == "event") current_.name = value;
        if (field == "id" && !lockcore::has_control_character(value)) id_ = value;
        if (field == "data") {
            if (std::exchange(has_data_, true)) current_.data += '\n';
            current_.data += value;
        }
    }
    return std::nullopt;
}

}  // namespace fencegate::cli
