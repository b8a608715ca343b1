#include <gateway/http/codec/json_io.hpp>

#include <gateway/http/codec/accept.hpp>
#include <gateway/http/codec/json_handler.hpp>

#include <lockcore/encoding.hpp>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>

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

}  // namespace fencegate::http
