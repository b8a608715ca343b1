#include <gateway/http/codec/json_io.hpp>

#include <gateway/domain/exact_number.hpp>
#include <gateway/http/codec/header_values.hpp>

#include <lockcore/encoding.hpp>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <functional>

namespace fencegate::http {
namespace {

failure malformed_json(std::string detail) {
    failure f = make_failure(errc::invalid_request, "The body is not valid JSON.");
    f.errors.push_back({"", std::move(detail)});
    return f;
}

std::string_view explain(const boost::json::error_code& ec) {
    if (ec == boost::json::error::too_deep) return "nested deeper than 32 levels";
    if (ec == boost::json::error::incomplete) return "ends before it is complete";
    if (ec == boost::json::error::extra_data) return "text follows the JSON value";
    if (ec == boost::json::error::exponent_overflow) return "a number's exponent is out of range";
    return {};
}

/// Lower bound of the memory of a value beside its characters: the value, its slot in an object, the parser's stack.
constexpr std::size_t bytes_of_value = 64;
/// Memory is reserved in steps of this many bytes.
constexpr std::size_t memory_step = 64 * 1024;

bool has_nul(boost::json::string_view s) {
    return s.find('\0') != boost::json::string_view::npos;
}

}  // namespace

result<boost::json::value> parse_json(std::string_view text, reserved_memory* memory) {
    if (text.empty()) return malformed_json("the body is empty");
    boost::json::parse_options options;
    options.max_depth = json_depth_max;
    boost::json::basic_parser<json_handler> parser(options, text, memory);
    boost::json::error_code ec;
    const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
    if (!ec && used < text.size()) ec = boost::json::error::extra_data;
    if (parser.handler().exceeded_memory()) return bodies_budget_failure();
    if (ec) {
        if (text.starts_with("\xEF\xBB\xBF")) return malformed_json("begins with a byte order mark");
        if (!lockcore::is_utf8(text)) return malformed_json("is not UTF-8");
        const std::string_view known = explain(ec);
        return malformed_json((known.empty() ? ec.message() : std::string(known)) + ", at byte " +
                              std::to_string(used));
    }
    json_handler& read = parser.handler();
    if (!read.faults().empty()) {
        failure f =
            make_failure(errc::invalid_request, "The body has values that cannot be stored exactly or are ambiguous.");
        f.errors = read.take_faults();
        return f;
    }
    return read.release();
}

result<boost::json::value> parse_body(const request& r) {
    const std::string_view encoding = r.header("content-encoding");
    if (!encoding.empty() && encoding != "identity") {
        return make_failure(errc::unsupported_media_type,
                            "A body with Content-Encoding is not accepted; send it without.");
    }
    const std::string_view type = r.header("content-type");
    if (!is_media_type(type, "application/json")) {
        return make_failure(errc::unsupported_media_type,
                            type.empty() ? "The header Content-Type is missing; send application/json."
                                         : "The body has to be application/json, and so has the header Content-Type "
                                           "(curl: -H 'content-type: application/json').");
    }
    if (const std::string charset = find_foreign_charset(type); !charset.empty()) {
        return make_failure(errc::unsupported_media_type,
                            "The body has to be in UTF-8; Content-Type names the charset " + charset + ".");
    }
    return parse_json(r.body, r.memory);
}

result<boost::json::object> parse_object_body(const request& r) {
    result<boost::json::value> body = parse_body(r);
    if (!body) return std::move(body).error();
    if (!body->is_object()) return invalid_field("", "the body has to be a JSON object");
    return std::move(body->get_object());
}

void append_json_string(std::string& out, std::string_view text) {
    bool plain = true;
    for (const char c : text) {
        // DEL and the bytes of UTF-8 sequences need no escape. A text with a character that does goes to Boost.JSON.
        plain = plain && static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    }
    if (plain) {
        out += '"';
        out += text;
        out += '"';
    } else {
        out += boost::json::serialize(boost::json::string_view(text.data(), text.size()));
    }
}

object_writer& object_writer::key(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    append_json_string(out_, name);
    out_ += ':';
    return *this;
}

object_writer& object_writer::text(std::string_view name, std::string_view value) {
    key(name);
    append_json_string(out_, value);
    return *this;
}

object_writer& object_writer::boolean(std::string_view name, bool value) {
    return raw(name, value ? "true" : "false");
}

object_writer& object_writer::null(std::string_view name) {
    return raw(name, "null");
}

object_writer& object_writer::raw(std::string_view name, std::string_view json) {
    key(name);
    out_ += json;
    return *this;
}

object_writer& object_writer::text_or_null(std::string_view name, std::string_view value) {
    return value.empty() ? null(name) : text(name, value);
}

response json_response(std::string body, unsigned status) {
    response out;
    out.status = status;
    out.body = std::move(body);
    return out;
}

bool json_handler::on_document_begin(error_code&) {
    values_.reset();
    return true;
}

bool json_handler::count_bytes(std::size_t bytes, error_code& ec) {
    bytes_ += bytes;
    if (memory_ == nullptr || bytes_ <= bytes_reserved_) return true;
    const std::size_t step = std::max(bytes_ - bytes_reserved_, memory_step);
    exceeded_memory_ = !memory_->try_grow(step);
    if (exceeded_memory_) ec = boost::json::error::array_too_large;  // the caller asks exceeded_memory()
    bytes_reserved_ += step;
    return !exceeded_memory_;
}

bool json_handler::begin_value(std::size_t bytes, error_code& ec) {
    if (!frames_.empty() && frames_.back().is_array) ++frames_.back().index;
    return count_bytes(bytes_of_value + bytes, ec);
}

void json_handler::add_fault(std::string detail, std::optional<std::string_view> key) {
    // The pointer is made only for a fault that is kept: with a long key around many faults it is expensive.
    if (faults_.size() == field_errors_max) return;
    std::string pointer = current_pointer();
    if (key) pointer = child_pointer(pointer, *key);
    faults_.push_back({shorten_pointer(std::move(pointer)), std::move(detail)});
}

/// Returns the JSON pointer of the value that is being read: the last key of every open object and the last index of
/// every open array.
std::string json_handler::current_pointer() const {
    std::string out;
    for (std::size_t i = 0; i < frames_.size(); ++i) {
        const frame& f = frames_[i];
        if (f.is_array) {
            out = child_pointer(out, f.index - 1);
            continue;
        }
        const std::size_t keys_end = [&] {
            for (std::size_t j = i + 1; j < frames_.size(); ++j) {
                if (!frames_[j].is_array) return frames_[j].first_key;
            }
            return keys_.size();
        }();
        if (keys_end > f.first_key) out = child_pointer(out, keys_[keys_end - 1]);
    }
    return out;
}

bool json_handler::on_object_begin(error_code& ec) {
    if (!begin_value(0, ec)) return false;
    frames_.push_back({keys_.size(), 0, false});
    return true;
}

void json_handler::check_keys(std::size_t first_key) {
    scratch_.assign(keys_.begin() + static_cast<std::ptrdiff_t>(first_key), keys_.end());
    keys_.resize(first_key);
    std::sort(scratch_.begin(), scratch_.end());
    for (std::size_t i = 1; i < scratch_.size(); ++i) {
        const bool reported = i >= 2 && scratch_[i - 2] == scratch_[i];
        if (scratch_[i - 1] == scratch_[i] && !reported) {
            add_fault("is given more than once in its object", scratch_[i]);
        }
    }
}

bool json_handler::on_object_end(std::size_t n, error_code&) {
    const std::size_t first_key = frames_.back().first_key;
    frames_.pop_back();  // current_pointer() is now the pointer of the object itself
    check_keys(first_key);
    values_.push_object(n);
    return true;
}

bool json_handler::on_array_begin(error_code& ec) {
    if (!begin_value(0, ec)) return false;
    frames_.push_back({keys_.size(), 0, true});
    return true;
}

bool json_handler::on_array_end(std::size_t n, error_code&) {
    frames_.pop_back();
    values_.push_array(n);
    return true;
}

bool json_handler::on_key_part(string_view s, std::size_t, error_code& ec) {
    if (!count_bytes(s.size(), ec)) return false;
    partial_key_.append(s.data(), s.size());
    values_.push_chars(s);
    return true;
}

bool json_handler::on_key(string_view s, std::size_t, error_code& ec) {
    if (!count_bytes(s.size(), ec)) return false;
    // What had escapes comes from the parser's own buffer, which does not last.
    const bool in_text =
        std::greater_equal<>()(s.data(), text_.data()) && std::less<>()(s.data(), text_.data() + text_.size());
    if (partial_key_.empty() && in_text) {
        keys_.emplace_back(s.data(), s.size());
    } else {
        partial_key_.append(s.data(), s.size());
        keys_.emplace_back(unescaped_.emplace_back(std::move(partial_key_)));
        partial_key_.clear();
    }
    if (keys_.back().find('\0') != std::string_view::npos) {
        add_fault("the key contains U+0000, which PostgreSQL text cannot store");
    }
    values_.push_key(s);
    return true;
}

bool json_handler::on_string_part(string_view s, std::size_t, error_code& ec) {
    if (!count_bytes(s.size(), ec)) return false;
    string_has_nul_ = string_has_nul_ || has_nul(s);
    values_.push_chars(s);
    return true;
}

bool json_handler::on_string(string_view s, std::size_t, error_code& ec) {
    if (!begin_value(s.size(), ec)) return false;
    if (string_has_nul_ || has_nul(s)) add_fault("contains U+0000, which PostgreSQL text cannot store");
    string_has_nul_ = false;
    values_.push_string(s);
    return true;
}

bool json_handler::on_int64(std::int64_t i, string_view s, error_code& ec) {
    if (!begin_value(0, ec)) return false;
    if (i == 0 && s.front() == '-') {
        values_.push_string(exact_number({s.data(), s.size()}).get_string());  // an integer has no negative zero
    } else {
        values_.push_int64(i);
    }
    return true;
}

bool json_handler::on_uint64(std::uint64_t u, string_view, error_code& ec) {
    if (!begin_value(0, ec)) return false;
    values_.push_uint64(u);
    return true;
}

bool json_handler::on_double(double, string_view s, error_code& ec) {
    if (!begin_value(s.size(), ec)) return false;
    values_.push_string(exact_number({s.data(), s.size()}).get_string());
    return true;
}

bool json_handler::on_bool(bool b, error_code& ec) {
    if (!begin_value(0, ec)) return false;
    values_.push_bool(b);
    return true;
}

bool json_handler::on_null(error_code& ec) {
    if (!begin_value(0, ec)) return false;
    values_.push_null();
    return true;
}

std::string replace_invalid_utf8(std::string text) {
    if (lockcore::is_utf8(text)) return text;
    std::string out;
    for (std::string_view rest = text; !rest.empty();) {
        const auto size = lockcore::utf8_character_size(rest);
        out += size == 0 ? std::string_view("\xEF\xBF\xBD") : rest.substr(0, size);
        rest.remove_prefix(size == 0 ? 1 : size);
    }
    return out;
}

std::string_view cut_utf8(std::string_view text, std::size_t bytes) {
    if (text.size() <= bytes) return text;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U)
        --bytes;
    return text.substr(0, bytes);
}

std::string child_pointer(std::string_view pointer, std::string_view key) {
    std::string out;
    out.reserve(pointer.size() + key.size() + 1);
    out.append(pointer);
    out += '/';
    for (const char c : key) {
        if (c == '~') {
            out += "~0";
        } else if (c == '/') {
            out += "~1";
        } else {
            out += c;
        }
    }
    return out;
}

std::string child_pointer(std::string_view pointer, std::size_t index) {
    std::string out(pointer);
    out += '/';
    out += std::to_string(index);
    return out;
}

std::string shorten_pointer(std::string pointer) {
    constexpr std::size_t bytes_max = 1024;
    if (pointer.size() <= bytes_max) return pointer;
    return std::string(cut_utf8(pointer, bytes_max)) + "…";
}

}  // namespace fencegate::http
