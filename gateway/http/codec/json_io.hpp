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

/// Arrays and objects in one another at most.
inline constexpr std::size_t json_depth_max = 32;

/// A JSON text as a value of which nothing was lost on the way.
///
/// Errors: errc::invalid_request, with all faults found: what JSON does not allow, deeper than json_depth_max, a key
/// that stands twice in an
///         object, U+0000 (PostgreSQL has none). Numbers keep their digits: see domain/exact_number.hpp.
/// `memory`: what the value takes beyond uncounted_bytes_max is added to it; null: not counted. Errors:
/// errc::overloaded, where it does not fit.
result<boost::json::value> parse_json(std::string_view text, reserved_memory* memory = nullptr);

/// The body of a request, counted in its memory. Errors: as parse_json; errc::unsupported_media_type unless it is
/// `application/json` without Content-Encoding.
result<boost::json::value> parse_body(const request& r);

/// As parse_body; a body that is not an object is a fault.
result<boost::json::object> parse_object_body(const request& r);

/// Appends `text` as a JSON string.
void append_json_string(std::string& out, std::string_view text);

/// Writes one JSON object straight into a string, member by member.
class object_writer {
  public:
    explicit object_writer(std::string& out) : out_(out) { out_ += '{'; }

    /// The caller appends the value itself.
    object_writer& key(std::string_view name);
    object_writer& text(std::string_view name, std::string_view value);
    object_writer& boolean(std::string_view name, bool value);
    object_writer& null(std::string_view name);
    /// `json` is JSON already.
    object_writer& raw(std::string_view name, std::string_view json);
    template <std::integral Number>
    object_writer& number(std::string_view name, Number value) {
        key(name);
        out_ += std::to_string(value);
        return *this;
    }
    /// Text, or null if it is empty.
    object_writer& text_or_null(std::string_view name, std::string_view value);
    void end() { out_ += '}'; }

  private:
    std::string& out_;
    bool first_ = true;
};

/// A 200 with a JSON body.
response json_response(std::string body, unsigned status = 200);

}  // namespace fencegate::http
