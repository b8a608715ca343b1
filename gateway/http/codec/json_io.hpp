#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/memory_budget.hpp>
#include <gateway/http/message.hpp>

#include <boost/json/basic_parser.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_stack.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Returns the text with U+FFFD for each byte that is no part of a valid character.
std::string replace_invalid_utf8(std::string text);

/// Returns as many whole characters of the text's beginning as have at most `bytes` bytes.
std::string_view cut_utf8(std::string_view text, std::size_t bytes);

/// Returns the JSON pointer (RFC 6901) of a member or element of the value at `pointer`.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_pointer(std::string_view pointer, std::size_t index);

/// Shortens a pointer of more than 1 KiB: its beginning, in whole characters, and "…".
std::string shorten_pointer(std::string pointer);

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

/// Receives what boost::json::basic_parser reads and builds the value. It checks what Boost's own handler accepts
/// silently: repeated keys and U+0000. It keeps such faults with their JSON pointer, field_errors_max at most, and
/// continues. A number that is not an integer of 64 bits becomes an exact_number.
///
/// Lifetime: the parser receives the text in one piece, and the text outlives the handler: keys without escapes are
///           views into the text.
class json_handler {
  public:
    static constexpr std::size_t max_object_size = boost::json::object::max_size();
    static constexpr std::size_t max_array_size = boost::json::array::max_size();
    static constexpr std::size_t max_key_size = boost::json::string::max_size();
    static constexpr std::size_t max_string_size = boost::json::string::max_size();

    /// `memory` counts the memory of the value; null: it is not counted.
    explicit json_handler(std::string_view text, reserved_memory* memory = nullptr) : text_(text), memory_(memory) {}

    /// Returns whether parsing ended because the memory budget was exceeded.
    bool exceeded_memory() const { return exceeded_memory_; }
    const std::vector<field_error>& faults() const { return faults_; }
    std::vector<field_error> take_faults() { return std::move(faults_); }
    boost::json::value release() { return values_.release(); }

    using error_code = boost::json::error_code;
    using string_view = boost::json::string_view;
    bool on_document_begin(error_code&);
    bool on_document_end(error_code&) { return true; }
    bool on_object_begin(error_code&);
    bool on_object_end(std::size_t n, error_code&);
    bool on_array_begin(error_code&);
    bool on_array_end(std::size_t n, error_code&);
    bool on_key_part(string_view s, std::size_t n, error_code&);
    bool on_key(string_view s, std::size_t n, error_code&);
    bool on_string_part(string_view s, std::size_t n, error_code&);
    bool on_string(string_view s, std::size_t n, error_code&);
    bool on_number_part(string_view, error_code&) { return true; }
    bool on_int64(std::int64_t i, string_view s, error_code&);
    bool on_uint64(std::uint64_t u, string_view s, error_code&);
    bool on_double(double d, string_view s, error_code&);
    bool on_bool(bool b, error_code&);
    bool on_null(error_code&);
    bool on_comment_part(string_view, error_code&) { return true; }
    bool on_comment(string_view, error_code&) { return true; }

  private:
    /// An array or object that is being read.
    struct frame {
        std::size_t first_key = 0;  ///< Index into keys_ of the first key of this object.
        std::size_t index = 0;      ///< Arrays: elements seen so far.
        bool is_array = false;
    };
    /// Counts a value with `bytes` characters. Out: false if no memory is left for it.
    bool begin_value(std::size_t bytes, error_code& ec);
    bool count_bytes(std::size_t bytes, error_code& ec);
    /// Keeps a fault of the value that is being read, or of its member `key`.
    void add_fault(std::string detail, std::optional<std::string_view> key = {});
    std::string current_pointer() const;
    void check_keys(std::size_t first_key);

    const std::string_view text_;
    reserved_memory* const memory_;
    std::size_t bytes_ = 0;
    std::size_t bytes_reserved_ = uncounted_bytes_max;
    bool exceeded_memory_ = false;
    boost::json::value_stack values_;
    std::vector<frame> frames_;
    std::vector<std::string_view> keys_;  ///< Keys of all open objects, outermost first.
    std::vector<std::string_view> scratch_;
    std::deque<std::string> unescaped_;  ///< Keys that had escapes. A deque does not move its strings.
    std::string partial_key_;
    bool string_has_nul_ = false;
    std::vector<field_error> faults_;
};

}  // namespace fencegate::http
