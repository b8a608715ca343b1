#include <gateway/pg/history_writer.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <array>
#include <cstdio>
#include <ctime>

namespace fencegate::pg {
namespace {

namespace json = boost::json;

std::string rfc3339(std::chrono::system_clock::time_point at) {
    const auto micros = std::chrono::floor<std::chrono::microseconds>(at.time_since_epoch());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(micros);
    const std::time_t time = seconds.count();
    std::tm parts{};
    gmtime_r(&time, &parts);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::array<char, 16> fraction{};
    std::snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>((micros - seconds).count()));
    return std::string(date.data()) + fraction.data();
}

json::value detail_of(const std::string& text) {
    boost::system::error_code error;
    auto parsed = json::parse(text, error);
    if (!error && parsed.is_object()) return parsed;
    json::object kept;
    kept["text"] = text;
    return kept;
}

json::object object_of(const history_item& item) {
    json::object out;
    const auto add_text = [&out](const char* name, const std::string& text) {
        if (!text.empty()) out[name] = text;
    };
    out["event"] = item.event;
    if (item.at != std::chrono::system_clock::time_point{}) out["at"] = rfc3339(item.at);
    add_text("resource", item.resource);
    if (item.fencing_token) out["fencing_token"] = *item.fencing_token;
    if (item.last_fencing_token) out["last_fencing_token"] = *item.last_fencing_token;
    add_text("owner", item.by.owner);
    add_text("principal", item.by.principal);
    add_text("trace_id", item.by.trace_id);
    add_text("write_id", item.write_id);
    if (!item.detail.empty()) out["detail"] = detail_of(item.detail);
    return out;
}

}  // namespace

std::string history_json(const std::vector<history_item>& items) {
    json::array list;
    list.reserve(items.size());
    for (const auto& item : items)
        list.emplace_back(object_of(item));
    return json::serialize(list);
}

void append_history(session& via, const std::vector<history_item>& items) {
    if (items.empty()) return;
    via.exec("select fencing.record_events($1::jsonb)", {history_json(items)});
}

}  // namespace fencegate::pg
