#include <gateway/http/codec/fields.hpp>

#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/encoding.hpp>

#include <boost/url/params_encoded_view.hpp>
#include <boost/url/parse_query.hpp>
#include <boost/url/rfc/pchars.hpp>

#include <algorithm>
#include <charconv>

namespace fencegate::http {
namespace {

std::string decode_form(boost::urls::pct_string_view text) {
    // HTML forms and most clients write a space as +.
    boost::urls::encoding_opts options;
    options.space_as_plus = true;
    return text.decode(options);
}

/// Returns the query with every character percent-encoded that has to be: clients send quotation marks, braces and
/// non-ASCII letters unencoded. What is encoded already does not change.
std::string strictly_encoded(std::string_view query) {
    constexpr auto allowed = boost::urls::pchars + "/?%";
    std::string out;
    out.reserve(query.size());
    for (const char& c : query) {
        if (allowed(c))
            out += c;
        else
            out += runtime::percent_encode({&c, 1});
    }
    return out;
}

}  // namespace

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

failure other_cell_failure(std::string_view subject, lockcore::cell_id named, lockcore::cell_id own) {
    failure out = make_failure(errc::misdirected_request, lockcore::describe_other_cell(subject, named, own));
    out.facts["named_cell"] = named;
    return out;
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

std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query, fault_list& faults) {
    std::vector<std::pair<std::string, std::string>> out;
    if (query.empty()) return out;
    const auto strict = strictly_encoded(query);
    const auto parsed = boost::urls::parse_query(strict);
    if (!parsed) {
        faults.add("query", "is not a well-formed query string");
        return out;
    }
    for (const auto& parameter : *parsed) {
        if (parameter.key.empty() && !parameter.has_value) continue;  // from a doubled &
        if (out.size() == parameters_max) {
            faults.add("query", "has more than 64 parameters");
            return out;
        }
        std::string name = decode_form(parameter.key);
        std::string value = parameter.has_value ? decode_form(parameter.value) : std::string();
        if (name.find('\0') != std::string::npos || value.find('\0') != std::string::npos)
            faults.add(name, "contains U+0000, which PostgreSQL text cannot store");
        if (!lockcore::is_utf8(name)) {
            faults.add("query", "has a parameter whose name is not UTF-8");
            continue;
        }
        if (!lockcore::is_utf8(value)) {
            faults.add(std::move(name), "is not UTF-8");
            continue;
        }
        out.emplace_back(std::move(name), std::move(value));
    }
    return out;
}

query_reader::query_reader(std::string_view query, std::initializer_list<std::string_view> known, fault_list& faults)
    : faults_(faults) {
    for (auto& [name, value] : query_parameters(query, faults)) {
        if (std::ranges::find(known, std::string_view(name)) == known.end()) {
            faults_.add(std::move(name), describe_unknown_name("parameter", known));
        } else if (text(name)) {
            faults_.add(std::move(name), "is given more than once");
        } else {
            parameters_.emplace_back(std::move(name), std::move(value));
        }
    }
}

std::optional<std::string> query_reader::text(std::string_view name) const {
    for (const auto& [key, value] : parameters_) {
        if (key == name) return value;
    }
    return std::nullopt;
}

std::optional<std::int64_t> query_reader::integer(std::string_view name, integer_bounds bounds) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(given->data(), given->data() + given->size(), value);
    if (error == std::errc{} && end == given->data() + given->size() && value >= bounds.lowest &&
        value <= bounds.highest)
        return value;
    faults_.add(std::string(name),
                "has to be an integer from " + std::to_string(bounds.lowest) + " to " + std::to_string(bounds.highest));
    return std::nullopt;
}

std::optional<bool> query_reader::boolean(std::string_view name) const {
    const auto given = text(name);
    if (!given) return std::nullopt;
    if (*given == "true") return true;
    if (*given == "false") return false;
    faults_.add(std::string(name), "has to be true or false");
    return std::nullopt;
}

}  // namespace fencegate::http
