#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/http/message.hpp>

#include <boost/json/value.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fencegate::http {

/// Deepest nesting of arrays and objects.
inline constexpr std::size_t json_depth_max = 32;

/// Parses a JSON text without loss: numbers keep their digits (domain/exact_number.hpp).
///
/// In:     `memory` counts the memory of the value beyond uncounted_bytes_max; null: it is not counted.
/// Errors: errc::invalid_request with all faults found: invalid JSON, nesting deeper than json_depth_max, a repeated
///         key in an object, U+0000 (which PostgreSQL cannot store) · errc::overloaded if the value does not fit into
///         `memory`.
result<boost::json::value> parse_json(std::string_view text, reserved_memory* memory = nullptr);

/// Parses the body of a request; the request's `memory` counts it.
///
/// Errors: those of parse_json · errc::unsupported_media_type unless it is `application/json` without Content-Encoding.
result<boost::json::value> parse_body(const request& r);

/// Parses the body of a request, which has to be an object. Errors: those of parse_body.
result<boost::json::object> parse_object_body(const request& r);

/// Appends `text` as a JSON string.
void append_json_string(std::string& out, std::string_view text);

/// Appends one JSON object to a string, member by member.
class object_writer {
  public:
    explicit object_writer(std::string& out) : out_(out) { out_ += '{'; }

    /// Appends a key; the caller appends the value itself.
    object_writer& key(std::string_view name);
    object_writer& text(std::string_view name, std::string_view value);
    object_writer& boolean(std::string_view name, bool value);
    object_writer& null(std::string_view name);
    /// Appends a member whose value is JSON text.
    object_writer& raw(std::string_view name, std::string_view json);
    template <std::integral Number>
    object_writer& number(std::string_view name, Number value) {
        key(name);
        out_ += std::to_string(value);
        return *this;
    }
    /// Appends a text, or null if it is empty.
    object_writer& text_or_null(std::string_view name, std::string_view value);
    void end() { out_ += '}'; }

  private:
    std::string& out_;
    bool first_ = true;
};

/// Returns a response with a JSON body.
response json_response(std::string body, unsigned status = 200);

}  // namespace fencegate::http
