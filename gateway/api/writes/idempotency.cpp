#include <gateway/api/writes/idempotency.hpp>

#include <gateway/audit/event_sink.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::api {
namespace {

constexpr std::size_t key_bytes_max = 64;

/// Appends a text that is the same for equal values, whatever the order of their members.
void append_canonical(std::string& out, const boost::json::value& value);

void append_canonical(std::string& out, const boost::json::object& object) {
    std::vector<const boost::json::key_value_pair*> members;
    members.reserve(object.size());
    for (const auto& member : object)
        members.push_back(&member);
    std::ranges::sort(members, {},
                      [](const auto* member) { return std::string_view(member->key().data(), member->key().size()); });
    out += '{';
    for (const auto* member : members) {
        http::append_json_string(out, {member->key().data(), member->key().size()});
        out += ':';
        append_canonical(out, member->value());
        out += ',';
    }
    out += '}';
}

void append_canonical(std::string& out, const boost::json::value& value) {
    if (const auto* object = value.if_object()) return append_canonical(out, *object);
    const auto* items = value.if_array();
    if (items == nullptr) {
        out += boost::json::serialize(value);
        return;
    }
    out += '[';
    for (const auto& item : *items) {
        append_canonical(out, item);
        out += ',';
    }
    out += ']';
}

/// Returns the parameters in the order of their texts.
std::string sort_parameters(std::string_view query) {
    std::vector<std::string_view> parameters;
    while (!query.empty()) {
        const auto parameter = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(parameter.size() + 1, query.size()));
        parameters.push_back(parameter);
    }
    std::ranges::sort(parameters);
    std::string out;
    for (const auto parameter : parameters)
        out.append(parameter).append("&");
    return out;
}

}  // namespace

std::string fingerprint_text_of(const boost::json::object& body) {
    std::string out;
    append_canonical(out, body);
    return out;
}

std::string fingerprint_text_of(const boost::json::value& body) {
    std::string out;
    append_canonical(out, body);
    return out;
}

std::string read_idempotency_key(const http::request& r, http::fault_list& faults) {
    if (!r.has_header("idempotency-key")) return {};
    const std::string_view key = r.header("idempotency-key");
    const bool visible = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; });
    if (key.empty() || key.size() > key_bytes_max || !visible)
        faults.add("Idempotency-Key", "has to be 1 to 64 visible ASCII characters");
    return std::string(key);
}

idempotency_key make_idempotency_key(std::string key, const http::request& r, std::string_view body,
                                     std::string_view accepted_form, std::chrono::milliseconds keep_for) {
    // What a role may see is not shown to another one of the same principal.
    const auto& database = r.rights->database();
    std::string text = database ? database->role + '\n' : std::string();
    text += http::to_string(r.verb);
    const auto preferences = r.header_list("prefer");
    const auto parameters = sort_parameters(r.query);
    for (const std::string_view part :
         {std::string_view(" "), std::string_view(r.path), std::string_view("?"), std::string_view(parameters),
          std::string_view("\n"), std::string_view(preferences), std::string_view("\n"), body}) {
        text += part;
    }
    if (!accepted_form.empty()) text.append("\n").append(accepted_form);
    return {std::move(key), sha256_hex(text), keep_for};
}

void record_replay(audit::event_sink& events, actor initiator, const std::vector<lockcore::resource_name>& resources,
                   const write_outcome* outcome, const failure* refusal) {
    history_item item;
    item.event = "write_replayed";
    item.at = std::chrono::system_clock::now();
    item.initiator = std::move(initiator);
    if (outcome != nullptr) {
        item.write_id = outcome->write_id;
        item.fencing_token = lockcore::value_of(outcome->token);
    } else {
        const auto* id = refusal->facts.if_contains("write_id");
        if (id != nullptr && id->is_string()) item.write_id = id->get_string();
        item.detail = boost::json::serialize(boost::json::object{{"error", pg::slug_of(refusal->code)}});
    }
    for (const auto& resource : resources) {
        item.resource = resource.str();
        events.add_low_priority(item);
    }
}

std::shared_ptr<void> running_keys::enter(const std::string& principal, const std::string& key) {
    std::string entry = principal + '\n' + key;
    const std::lock_guard lock(mutex_);
    if (!keys_.insert(entry).second) return nullptr;
    return {this, [entry = std::move(entry)](running_keys* self) {
                const std::lock_guard leaving(self->mutex_);
                self->keys_.erase(entry);
            }};
}

failure add_write_id(failure f, const std::string& write_id) {
    const bool was_made = f.code != errc::idempotency_in_progress && f.code != errc::idempotency_mismatch;
    if (was_made && !f.facts.contains("write_id")) f.facts["write_id"] = write_id;
    return f;
}

}  // namespace fencegate::api
