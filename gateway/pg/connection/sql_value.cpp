#include <gateway/pg/connection/sql_value.hpp>

#include <gateway/domain/exact_number.hpp>

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <utility>

namespace fencegate::pg {
namespace {

namespace json = boost::json;

/// Doubles above this no longer hold every integer.
constexpr double exact_integers_below = 9007199254740992.0;

std::string integer_text(double whole) {
    std::array<char, 64> buffer{};
    const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(), whole, std::chars_format::fixed, 0);
    return std::string(buffer.data(), done.ptr);
}

bool is_whole(double value) {
    return std::isfinite(value) && std::trunc(value) == value && std::fabs(value) < exact_integers_below;
}

/// Counts the digits without sign, decimal point, exponent and zeros at both ends.
std::size_t significant_digits(std::string_view number) {
    std::string digits;
    for (const char c : number.substr(0, number.find_first_of("eE"))) {
        if (c >= '0' && c <= '9') digits.push_back(c);
    }
    const auto first = digits.find_first_not_of('0');
    return first == std::string::npos ? 0 : digits.find_last_not_of('0') - first + 1;
}

std::string number_text(std::string_view digits, std::string_view type) {
    constexpr std::size_t digits_of_a_double = 15;
    if (type.starts_with("numeric") || significant_digits(digits) > digits_of_a_double) return std::string(digits);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool read = error == std::errc{} && end == digits.data() + digits.size();
    // A zero keeps its sign, which floating point types can hold.
    return read && is_whole(value) && value != 0 ? integer_text(value) : std::string(digits);
}

value_result<std::string> double_text(double value) {
    if (!std::isfinite(value)) return value_fault::because("The number is out of range.");
    if (is_whole(value)) return integer_text(value);
    std::array<char, 64> buffer{};
    const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return std::string(buffer.data(), done.ptr);
}

void append_json(std::string& out, const json::value& value) {
    if (const auto* items = value.if_array()) {
        out.push_back('[');
        for (const auto& item : *items) {
            if (&item != items->data()) out.push_back(',');
            append_json(out, item);
        }
        out.push_back(']');
    } else if (const auto* object = value.if_object()) {
        out.push_back('{');
        bool first = true;
        for (const auto& member : *object) {
            if (!std::exchange(first, false)) out.push_back(',');
            out += json::serialize(member.key());
            out.push_back(':');
            append_json(out, member.value());
        }
        out.push_back('}');
    } else if (const auto digits = exact_digits(value)) {
        out += *digits;
    } else {
        out += json::serialize(value);
    }
}

/// Whether the type is an application's: types of pg_catalog are written without a schema.
bool is_user_type(std::string_view type) {
    return type.find('.') != std::string_view::npos;
}

std::string element_type(std::string_view array_type) {
    while (is_array_type(array_type))
        array_type.remove_suffix(2);
    return std::string(array_type);
}

void append_quoted(std::string& out, std::string_view text) {
    out.push_back('"');
    for (const char c : text) {
        if (c == '"' || c == '\\') out.push_back('\\');
        out.push_back(c);
    }
    out.push_back('"');
}

/// Returns the array literal of a JSON array. Nested arrays are further dimensions, unless the element type is json.
value_result<std::string> nested_array_literal(const json::array& items, std::string_view element) {
    std::string out = "{";
    for (const auto& item : items) {
        if (out.size() > 1) out.push_back(',');
        if (item.is_null()) {
            out += "NULL";
        } else if (is_json_type(element)) {
            append_quoted(out, json_text(item));
        } else if (item.is_array()) {
            auto inner = nested_array_literal(item.get_array(), element);
            if (!inner) return inner;
            out += *inner;
        } else if (item.is_object()) {
            return value_fault::because("The type " + std::string(element) + " takes no object.");
        } else {
            auto text = scalar_text(item, element);
            if (!text) return text;
            append_quoted(out, *text);
        }
    }
    out.push_back('}');
    return out;
}

/// Binds a value whose text form only PostgreSQL knows: composite types and arrays of an application's types.
std::string bind_as_json(statement& target, std::string_view type, const json::value& value) {
    std::string document = "{\"v\":";
    append_json(document, value);
    document.push_back('}');
    return "(select v from json_to_record(" + target.bind(std::move(document)) + "::json) as r(v " + std::string(type) +
           "))";
}

value_result<std::string> bind_array(statement& target, std::string_view type, const json::value& value) {
    if (is_user_type(type)) return bind_as_json(target, type, value);
    if (!is_array_type(type)) return value_fault::because("The type " + std::string(type) + " takes no array.");
    return bind_list(target, element_type(type), value.get_array());
}

value_result<std::string> bind_object(statement& target, std::string_view type, const json::value& value) {
    if (is_user_type(type) && !is_array_type(type)) return bind_as_json(target, type, value);
    return value_fault::because("The type " + std::string(type) + " takes no object.");
}

}  // namespace

std::string statement::bind(std::optional<std::string> value) {
    parameters.push_back(std::move(value));
    return "$" + std::to_string(parameters.size());
}

std::string quote_identifier(std::string_view name) {
    std::string out = "\"";
    for (const char c : name) {
        if (c == '"') out.push_back('"');
        out.push_back(c);
    }
    out.push_back('"');
    return out;
}

std::string array_literal(const std::vector<std::string>& items) {
    std::string out = "{";
    for (const auto& item : items) {
        if (out.size() > 1) out.push_back(',');
        append_quoted(out, item);
    }
    out.push_back('}');
    return out;
}

std::string json_text(const json::value& value) {
    std::string out;
    append_json(out, value);
    return out;
}

std::string json_text(const json::value& value, std::string_view type) {
    const auto digits = exact_digits(value);
    return digits && !is_json_type(type) ? number_text(*digits, type) : json_text(value);
}

value_result<std::string> scalar_text(const json::value& value, std::string_view type) {
    if (const auto digits = exact_digits(value)) return number_text(*digits, type);
    switch (value.kind()) {
        case json::kind::bool_:
            return std::string(value.get_bool() ? "true" : "false");
        case json::kind::int64:
            return std::to_string(value.get_int64());
        case json::kind::uint64:
            return std::to_string(value.get_uint64());
        case json::kind::double_:
            return double_text(value.get_double());
        case json::kind::string: {
            const auto& text = value.get_string();
            if (text.find('\0') != json::string::npos)
                return value_fault::because("PostgreSQL stores no text with the character U+0000.");
            return std::string(text);
        }
        default:
            return value_fault::because("A single value is needed here.");
    }
}

std::string cast_type(std::string_view type) {
    if (is_array_type(type)) return cast_type(type.substr(0, type.size() - 2)) + "[]";
    if (type.starts_with("interval")) return "interval";
    std::string out(type);
    if (!is_user_type(type)) {
        // "character varying(3)", "timestamp(3) with time zone"
        const auto open = out.find('(');
        const auto close = out.find(')', open == std::string::npos ? 0 : open);
        if (open != std::string::npos && close != std::string::npos) out.erase(open, close - open + 1);
    }
    // Without a length these names mean a length of one.
    if (out == "character") return "bpchar";
    if (out == "bit") return "\"bit\"";
    return out;
}

bool is_json_type(std::string_view type) {
    return type == "json" || type == "jsonb";
}

bool is_array_type(std::string_view type) {
    return type.ends_with("[]");
}

value_result<std::string> bind_list(statement& target, std::string_view element, const json::array& items) {
    auto literal = nested_array_literal(items, element);
    if (!literal) return literal;
    return target.bind(std::move(*literal));
}

value_result<std::string> bind_value(statement& target, std::string_view type, const json::value& value) {
    if (value.is_null()) return target.bind(std::nullopt);
    if (is_json_type(type)) return target.bind(json_text(value));
    if (value.is_array()) return bind_array(target, type, value);
    if (value.is_object()) return bind_object(target, type, value);
    auto text = scalar_text(value, type);
    if (!text) return text;
    return target.bind(std::move(*text));
}

std::string sql_time(std::chrono::sys_time<std::chrono::microseconds> at) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    const std::time_t time = seconds.time_since_epoch().count();
    std::tm parts{};
    gmtime_r(&time, &parts);
    std::array<char, 32> date{};
    std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::array<char, 16> fraction{};
    std::snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>((at - seconds).count()));
    return std::string(date.data()) + fraction.data();
}

}  // namespace fencegate::pg
