#include <gateway/http/transport/request_parser.hpp>

#include <gateway/http/codec/header_values.hpp>

#include <boost/beast/http/error.hpp>

#include <algorithm>
#include <array>

namespace fencegate::http {
namespace {

/// Fields that may be given only once: of two values one reader could use the first and another the last.
constexpr std::array<std::string_view, 10> single_fields{
    "content-type",    "content-encoding", "fencing-lease", "fencing-resource", "fencing-token",
    "idempotency-key", "last-event-id",    "origin",        "sec-fetch-site",   "transfer-encoding"};
/// Fields that are ignored if they are given more than once, as if they were malformed.
constexpr std::array<std::string_view, 2> ignored_if_repeated{"traceparent", "x-request-id"};

/// Maximum number of bytes that a Content-Length alone makes the parser allocate. The memory of a larger body grows
/// as it arrives.
constexpr std::uint64_t reserved_max = 64 * 1024;

std::string_view view(boost::beast::string_view text) {
    return {text.data(), text.size()};
}

}  // namespace

request_parser::request_parser(const http_config& cfg)
    : header_max_bytes_(cfg.header_max_bytes), header_fields_max_(cfg.header_fields_max) {
    eager(true);
    header_limit(static_cast<std::uint32_t>(cfg.header_max_bytes));
    body_limit(static_cast<std::uint64_t>(cfg.body_max_bytes));
}

void request_parser::read(boost::beast::flat_buffer& arrived, error_code& ec) {
    ec = {};
    while (!got_some() && arrived.size() > 0) {
        // Empty lines before a request are ignored (RFC 9112, 2.2).
        const std::string_view input(static_cast<const char*>(arrived.data().data()), arrived.size());
        if (input == "\r") return;
        if (!input.starts_with("\r\n")) break;
        arrived.consume(2);
    }
    while (!is_done() && arrived.size() > 0) {
        const std::size_t used = put(arrived.data(), ec);
        arrived.consume(used);
        if (ec || used == 0) break;
    }
    if (ec == boost::beast::http::error::need_more) ec = {};
    // Only an incomplete line or head is left: of the request, of a chunk, or of the trailer.
    if (!ec && !is_done() && arrived.size() > header_max_bytes_) ec = boost::beast::http::error::header_limit;
}

/// Parses bytes as basic_parser::put does, but of a chunked body only five bytes or more, which each rest of it has.
/// Beast 1.81 ends the process by an assertion if the last chunk of an empty body, `0 CR LF CR LF`, is parsed first
/// without its last two bytes and then without its last one.
std::size_t request_parser::put(boost::asio::const_buffer bytes, error_code& ec) {
    constexpr std::size_t last_chunk_bytes = 5;
    if (is_header_done() && chunked() && bytes.size() < last_chunk_bytes) {
        ec = boost::beast::http::error::need_more;
        return 0;
    }
    return basic_parser::put(bytes, ec);
}

void request_parser::refuse(std::string_view detail, error_code& ec) {
    fault_ = detail;
    ec = boost::beast::http::error::bad_field;
}

void request_parser::refuse_repeated(std::string_view field, error_code& ec) {
    repeated_field_ = field;
    refuse("The header " + repeated_field_ + " is given more than once.", ec);
}

void request_parser::on_request_impl(boost::beast::http::verb, string_view method_text, string_view target, int version,
                                     error_code& ec) {
    version_ = version;
    message.verb = http::parse_method(view(method_text));
    std::string_view rest = view(target);
    const std::string scheme = to_lower(target.substr(0, std::string_view("https://").size()));
    if (scheme.starts_with("http://") || scheme == "https://") {
        // A server has to accept the absolute form too, and its host overrides the header Host (RFC 9112, 3.2.2).
        rest.remove_prefix(rest.find("//") + 2);
        const std::size_t end_of_authority = std::min(rest.find_first_of("/?#"), rest.size());
        host = rest.substr(0, end_of_authority);
        absolute_target_ = true;
        if (host.empty()) return refuse("The request target has a scheme, but no host.", ec);
        rest = end_of_authority == rest.size() ? "/" : rest.substr(end_of_authority);
    }
    if (rest.find('#') != std::string_view::npos) return refuse("The request target has a fragment.", ec);
    const std::size_t path_end = rest.find('?');
    message.path = rest.substr(0, path_end);
    if (message.path.empty()) message.path = "/";
    if (path_end != std::string_view::npos) message.query = rest.substr(path_end + 1);
    message.headers.reserve(8);
}

void request_parser::on_field_impl(boost::beast::http::field, string_view name_text, string_view value,
                                   error_code& ec) {
    if (++fields_ > header_fields_max_) {
        exceeded_header_limit_ = true;
        return refuse("The request has more than " + std::to_string(header_fields_max_) +
                          " header fields (http.header_fields_max).",
                      ec);
    }
    if (header_over_) return;  // a field of the trailer
    std::string name = to_lower(name_text);
    if (name == "host") {
        ++hosts_;
        if (!absolute_target_) host = view(value);
        return;
    }
    if (name == "authorization" || name == "x-api-key") {
        std::string& slot = name == "authorization" ? authorization : x_api_key;
        if (!slot.empty()) return refuse_repeated(view(name_text), ec);
        slot = view(value);
        return;
    }
    if (name == "transfer-encoding" && http_1_0()) {
        // A server of HTTP/1.0 in front of this one would have read the body as the next request (RFC 9112, 6.1).
        return refuse("HTTP/1.0 has no Transfer-Encoding.", ec);
    }
    if (name == "transfer-encoding" && to_lower(value) != "chunked") {
        return refuse("The Transfer-Encoding has to be 'chunked'; no other is supported.", ec);
    }
    if (name == "expect") expects_continue_ = !http_1_0() && to_lower(value) == "100-continue";
    const auto first = std::ranges::find(message.headers, name, [](const auto& header) { return header.first; });
    if (first != message.headers.end()) {
        if (std::ranges::find(single_fields, name) != single_fields.end()) return refuse_repeated(view(name_text), ec);
        if (std::ranges::find(ignored_if_repeated, name) != ignored_if_repeated.end()) {
            first->second.clear();
            return;
        }
    }
    message.headers.emplace_back(std::move(name), std::string(view(value)));
}

void request_parser::on_header_impl(error_code& ec) {
    header_over_ = true;
    if (hosts_ == 1 && host.empty() && version_ >= 11) refuse("The header Host is empty.", ec);
    if (hosts_ > 1) return refuse_repeated("Host", ec);
    if (hosts_ == 0 && version_ >= 11) refuse("The request needs exactly one header Host.", ec);
}

void request_parser::on_body_init_impl(const boost::optional<std::uint64_t>& content_length, error_code&) {
    if (content_length) message.body.reserve(static_cast<std::size_t>(std::min(*content_length, reserved_max)));
}

std::size_t request_parser::on_body_impl(string_view body, error_code&) {
    message.body.append(body.data(), body.size());
    return body.size();
}

void request_parser::on_chunk_header_impl(std::uint64_t, string_view extensions, error_code& ec) {
    extension_bytes_ += extensions.size();
    if (extension_bytes_ <= header_max_bytes_) return;
    exceeded_header_limit_ = true;
    refuse("The extensions of the body's chunks are larger than " + std::to_string(header_max_bytes_) +
               " bytes (http.header_max_bytes).",
           ec);
}

std::size_t request_parser::on_chunk_body_impl(std::uint64_t, string_view body, error_code&) {
    message.body.append(body.data(), body.size());
    return body.size();
}

failure make_parse_failure(const request_parser& parser, const boost::system::error_code& ec,
                           const http_config& config) {
    namespace error = boost::beast::http;
    if (ec == error::error::body_limit)
        return make_failure(errc::too_large, "The body is larger than " + std::to_string(config.body_max_bytes) +
                                                 " bytes (http.body_max_bytes).");
    if (ec == error::error::header_limit)
        return make_failure(errc::header_too_large,
                            "The request's head, its trailer or a chunk's header is larger than " +
                                std::to_string(config.header_max_bytes) + " bytes (http.header_max_bytes).");
    if (!parser.repeated_field().empty())
        return invalid_field(std::string(parser.repeated_field()), "is given more than once");
    if (!parser.fault().empty())
        return make_failure(parser.exceeded_header_limit() ? errc::header_too_large : errc::invalid_request,
                            std::string(parser.fault()));
    return make_failure(errc::invalid_request, "This is not a valid HTTP/1.1 request: " + ec.message() + ".");
}

}  // namespace fencegate::http
