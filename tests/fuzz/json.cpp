// JSON bodies, and the JSON strings that answers contain.
#include "fuzz.hpp"

#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <string>

namespace fencegate::fuzz {
namespace {

namespace json = boost::json;

std::string_view view(const json::string& text) {
    return {text.data(), text.size()};
}

void render(const json::value& value, std::string& out) {
    if (const auto digits = exact_digits(value)) {
        out += *digits;
    } else if (const auto* text = value.if_string()) {
        http::append_json_string(out, view(*text));
    } else if (const auto* array = value.if_array()) {
        out += '[';
        for (const auto& element : *array) {
            if (&element != array->data()) out += ',';
            render(element, out);
        }
        out += ']';
    } else if (const auto* object = value.if_object()) {
        out += '{';
        for (const auto& member : *object) {
            if (&member != &*object->begin()) out += ',';
            http::append_json_string(out, {member.key().data(), member.key().size()});
            out += ':';
            render(member.value(), out);
        }
        out += '}';
    } else {
        out += json::serialize(value);
    }
}

std::size_t depth_of(const json::value& value) {
    std::size_t deepest = 0;
    if (const auto* array = value.if_array()) {
        for (const auto& element : *array)
            deepest = std::max(deepest, depth_of(element));
        return deepest + 1;
    }
    if (const auto* object = value.if_object()) {
        for (const auto& member : *object)
            deepest = std::max(deepest, depth_of(member.value()));
        return deepest + 1;
    }
    return 0;
}

void check_string(std::string_view text) {
    std::string quoted;
    http::append_json_string(quoted, text);
    require(std::ranges::none_of(quoted, [](unsigned char c) { return c < 0x20; }),
            "a JSON string has no control characters");
    const auto read = http::parse_json(quoted);
    // The reader refuses U+0000, which PostgreSQL can't store, and what is not UTF-8.
    const bool ascii = std::ranges::all_of(text, [](unsigned char c) { return c > 0 && c < 0x80; });
    require(read || !ascii, "a JSON string of ASCII is JSON");
    require(!read || view(read->get_string()) == text, "a JSON string is read as it was");
}

}  // namespace

void run_input(std::string_view input) {
    check_string(input);
    const auto value = http::parse_json(input);
    if (!value) {
        require(value.error().errors.size() <= field_errors_max, "the number of faults is bounded");
        for (const auto& fault : value.error().errors)
            require(fault.pointer.size() <= 1024 + std::string_view("…").size(), "the pointer of a fault is bounded");
        return;
    }
    json::error_code ec;
    json::parse({input.data(), input.size()}, ec);
    require(!ec, "what is accepted is JSON for Boost.JSON too");
    require(depth_of(*value) <= http::json_depth_max, "the nesting is bounded");
    std::string text;
    render(*value, text);
    const auto again = http::parse_json(text);
    require(again.has_value(), "a value that was read can be written and read again");
    std::string text_again;
    render(*again, text_again);
    require(text == text_again, "numbers and texts are kept exactly");
}

}  // namespace fencegate::fuzz
