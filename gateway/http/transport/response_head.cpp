#include <gateway/http/transport/response_head.hpp>

#include <gateway/http/routing/origin_rules.hpp>

#include <boost/beast/http/status.hpp>

#include <charconv>

namespace fencegate::http {
namespace {

void append_number(std::string& out, std::size_t value) {
    char digits[24];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    out.append(std::begin(digits), end);
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
    out += name;
    out += ": ";
    // No value should contain a line break. If one does, it must not begin another header.
    for (const char c : value)
        out += c == '\r' || c == '\n' ? ' ' : c;
    out += "\r\n";
}

}  // namespace

bool has_body(unsigned status) {
    return status >= 200 && status != 204 && status != 304;
}

std::string_view reason_of(unsigned status) {
    // RFC 9110 renamed these two.
    if (status == 413) return "Content Too Large";
    if (status == 422) return "Unprocessable Content";
    const auto reason = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
    return {reason.data(), reason.size()};
}

void render_head(std::string& out, const response& r, const head_additions& add) {
    out.clear();
    out += add.http_1_0 ? "HTTP/1.0 " : "HTTP/1.1 ";
    append_number(out, r.status);
    out += ' ';
    out += reason_of(r.status);
    out += "\r\n";
    append_field(out, "Date", add.date);
    if (has_body(r.status)) {
        append_field(out, "Content-Type", r.content_type);
        if (!r.stream) {
            out += "Content-Length: ";
            append_number(out, r.body.size());
            out += "\r\n";
        } else if (!add.http_1_0) {
            out += "Transfer-Encoding: chunked\r\n";
        }
    }
    append_field(out, "X-Request-Id", add.request_id);
    bool has_cache_control = false, has_type_options = false;
    for (const auto& [name, value] : r.headers) {
        append_field(out, name, value);
        has_cache_control = has_cache_control || name == "Cache-Control";
        has_type_options = has_type_options || name == "X-Content-Type-Options";
    }
    if (!add.allowed_origin.empty()) {
        append_field(out, "Access-Control-Allow-Origin", add.allowed_origin);
        append_field(out, "Access-Control-Expose-Headers", exposed_headers);
    }
    if (add.varies_by_origin) append_field(out, "Vary", "Origin");
    if (add.varies_by_encoding) append_field(out, "Vary", "Accept-Encoding");
    if (!has_cache_control) append_field(out, "Cache-Control", "no-store");
    if (!has_type_options) append_field(out, "X-Content-Type-Options", "nosniff");
    if (!add.keep_alive) {
        out += "Connection: close\r\n";
    } else if (add.http_1_0) {
        out += "Connection: keep-alive\r\n";
    }
    out += "\r\n";
}

}  // namespace fencegate::http
