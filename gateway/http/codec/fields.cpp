#include <gateway/http/codec/fields.hpp>

#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/text.hpp>

#include <algorithm>

namespace fencegate::http {

void fault_list::add(std::string pointer, std::string detail) {
    if (faults_.size() == field_errors_max) {
        ++left_out_;
    } else {
        faults_.push_back({shorten_pointer(std::move(pointer)), std::move(detail)});
    }
}

failure fault_list::to_failure() && {
    const std::size_t count = faults_.size() + left_out_;
    failure f = make_failure(errc::invalid_request,
                             count == 1 ? "The request has a faulty field."
                                        : "The request has " + std::to_string(count) + " faulty fields.");
    f.errors = std::move(faults_);
    return f;
}

std::string describe_unknown_name(std::string_view kind, std::initializer_list<std::string_view> known) {
    std::string out = "is not a " + std::string(kind) + " of this request; there ";
    out += known.size() == 0 ? "is none" : known.size() == 1 ? "is only " : "are ";
    for (const auto& name : known)
        out.append(&name == known.begin() ? "" : ", ").append(name);
    return out;
}

const boost::json::value* object_reader::find(std::string_view key) const {
    return object_.if_contains({key.data(), key.size()});
}

std::optional<std::int64_t> object_reader::integer(std::string_view key, integer_bounds bounds) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_int64() && value->get_int64() >= bounds.lowest && value->get_int64() <= bounds.highest)
        return value->get_int64();
    type_fault(key, *value,
               "an integer from " + std::to_string(bounds.lowest) + " to " + std::to_string(bounds.highest));
    return std::nullopt;
}

std::optional<bool> object_reader::boolean(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->is_bool()) return value->get_bool();
    type_fault(key, *value, "true or false");
    return std::nullopt;
}

std::optional<std::string_view> object_reader::text(std::string_view key, std::size_t bytes_max,
                                                    bool may_be_empty) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!is_json_string(*value)) {
        type_fault(key, *value, "a string");
        return std::nullopt;
    }
    const auto& text = value->get_string();
    if (text.size() > bytes_max || (text.empty() && !may_be_empty)) {
        fault(key, std::string("has to have ") + (may_be_empty ? "at most " : "1 to ") + std::to_string(bytes_max) +
                       " bytes");
        return std::nullopt;
    }
    return std::string_view(text.data(), text.size());
}

const boost::json::object* object_reader::object(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return nullptr;
    if (!value->is_object()) type_fault(key, *value, "an object");
    return value->if_object();
}

const boost::json::array* object_reader::array(std::string_view key) const {
    const boost::json::value* value = find(key);
    if (value == nullptr) return nullptr;
    if (!value->is_array()) type_fault(key, *value, "an array");
    return value->if_array();
}

void object_reader::refuse_unknown(std::initializer_list<std::string_view> known) const {
    for (const auto& member : object_) {
        const std::string_view key(member.key().data(), member.key().size());
        if (std::ranges::find(known, key) == known.end()) fault(key, describe_unknown_name("field", known));
    }
}

void object_reader::fault(std::string_view key, std::string detail) const {
    faults_.add(pointer_to(key), std::move(detail));
}

void object_reader::type_fault(std::string_view key, const boost::json::value& given, const std::string& wanted) const {
    fault(key,
          "has to be " + wanted + (given.is_null() ? ", not null; leave the field out where there is no value" : ""));
}

std::string object_reader::pointer_to(std::string_view key) const {
    return child_pointer(pointer_, key);
}

}  // namespace fencegate::http
