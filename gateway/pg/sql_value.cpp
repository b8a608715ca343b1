#include <gateway/pg/sql_value.hpp>

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fencegate::pg {
namespace {

namespace json = boost::json;

/// Doubles above this no longer hold every integer.
constexpr double exact_integers_below = 9007199254740992.0;

value_result<std::string> double_text(double value) {
    if (!std::isfinite(value)) return value_fault::because("The number is out of range.");
    std::array<char, 64> buffer{};
    auto* end = buffer.data() + buffer.size();
    // 1e5 is an integer for JSON; PostgreSQL's integer types do not read exponents.
    const bool integral = std::trunc(value) == value && std::fabs(value) < exact_integers_below;
    const auto done = integral ? std::to_chars(buffer.data(), end, value, std::chars_format::fixed, 0)
                               : std::to_chars(buffer.data(), end, value);
    return std::string(buffer.data(), done.ptr);
}

/// A type of an application, as opposed to one of pg_catalog, which is written without a schema.
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

/// The array literal of a JSON array; nested arrays are further dimensions, unless the elements are JSON themselves.
value_result<std::string> nested_array_literal(const json::array& items, bool elements_are_json) {
    std::string out = "{";
    for (const auto& item : items) {
        if (out.size() > 1) out.push_back(',');
        if (item.is_null()) {
            out += "NULL";
        } else if (elements_are_json) {
            append_quoted(out, json::serialize(item));
        } else if (item.is_array()) {
            auto inner = nested_array_literal(item.get_array(), false);
            if (!inner) return inner;
            out += *inner;
        } else if (item.is_object()) {
            return value_fault::because("Objects and other values can't be mixed in one array.");
        } else {
            auto text = scalar_text(item);
            if (!text) return text;
            append_quoted(out, *text);
        }
    }
    out.push_back('}');
    return out;
}

value_result<std::string> bind_array(statement& into, std::string_view type, const json::array& items) {
    if (!is_array_type(type) && !is_user_type(type)) {
        return value_fault::because("The type " + std::string(type) + " takes no array.");
    }
    const auto element = element_type(type);
    const bool all_objects =
        !items.empty() && std::all_of(items.begin(), items.end(), [](const auto& item) { return item.is_object(); });
    if (all_objects && !is_json_type(element)) {
        if (!is_user_type(element)) return value_fault::because("The type " + std::string(type) + " takes no objects.");
        const auto placeholder = into.bind(json::serialize(items));
        return "array(select fencegate_item from jsonb_populate_recordset(null::" + element + ", " + placeholder +
               "::jsonb) as fencegate_item)";
    }
    auto literal = nested_array_literal(items, is_json_type(element));
    if (!literal) return literal;
    return into.bind(std::move(*literal));
}

value_result<std::string> bind_object(statement& into, std::string_view type, const json::object& object) {
    if (!is_user_type(type) || is_array_type(type)) {
        return value_fault::because("The type " + std::string(type) + " takes no object.");
    }
    const auto placeholder = into.bind(json::serialize(object));
    return "jsonb_populate_record(null::" + std::string(type) + ", " + placeholder + "::jsonb)";
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

value_result<std::string> scalar_text(const json::value& value) {
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
                return value_fault::because("PostgreSQL keeps no text with the character U+0000.");
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
    // Their plain names mean a length of one.
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

value_result<std::string> bind_value(statement& into, std::string_view type, const json::value& value) {
    if (value.is_null()) return into.bind(std::nullopt);
    if (is_json_type(type)) return into.bind(json::serialize(value));
    if (value.is_array()) return bind_array(into, type, value.get_array());
    if (value.is_object()) return bind_object(into, type, value.get_object());
    auto text = scalar_text(value);
    if (!text) return text;
    return into.bind(std::move(*text));
}

}  // namespace fencegate::pg
