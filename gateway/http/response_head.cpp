#include <gateway/http/response_head.hpp>

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
    // No value of ours has a line break; one that came in by mistake must not become a header of its own.
    for (const char c : value)
        out += c == '\r' || c == '\n' ? ' ' : c;
    out += "\r\n";
}

}  // namespace

bool has_body(unsigned status) {
    return status >= 200 && status != 204 && status != 304;
}

std::string_view reason_of(unsigned status) {
    switch (status) {
        case 200:
            return "OK";
        case 201:
            return "Created";
        case 204:
            return "No Content";
        case 206:
            return "Partial Content";
        case 304:
            return "Not Modified";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 406:
            return "Not Acceptable";
        case 409:
            return "Conflict";
        case 410:
            return "Gone";
        case 412:
            return "Precondition Failed";
        case 413:
            return "Content Too Large";
        case 415:
            return "Unsupported Media Type";
        case 421:
            return "Misdirected Request";
        case 422:
            return "Unprocessable Content";
        case 423:
            return "Locked";
        case 428:
            return "Precondition Required";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 503:
            return "Service Unavailable";
        default:
            return "Status";
    }
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
