#include "http_reading.hpp"

#include "fuzz.hpp"

#include <gateway/http/transport/request_parser.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

namespace fencegate::fuzz {
namespace {

http_config limits() {
    http_config cfg;
    cfg.header_max_bytes = header_max_bytes;
    cfg.header_fields_max = header_fields_max;
    cfg.body_max_bytes = body_max_bytes;
    return cfg;
}

std::string lower_case(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    return out;
}

std::string_view trim(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

read_request describe(const http::request_parser& parser, std::size_t end) {
    const http::request& message = parser.message;
    read_request out;
    const std::string first_line =
        std::string(http::to_string(message.verb)) + ' ' + message.path + '?' + message.query + '\n';
    out.handled_text = first_line + message.body;
    out.text = first_line;
    for (const auto& [name, value] : message.headers)
        out.text += name + ": " + value + '\n';
    out.text +=
        "host: " + parser.host + "\nkey: " + parser.authorization + ' ' + parser.x_api_key + '\n' + message.body;
    out.body = message.body;
    out.is_head = message.verb == http::method::head;
    out.keep_alive = parser.keep_alive();
    out.end = end;
    require(message.headers.size() <= header_fields_max, "the number of fields is bounded");
    require(message.body.size() <= body_max_bytes, "the size of a body is bounded");
    require(!message.path.empty(), "a request has a path");
    require(message.path.find_first_of("?# \r\n") == std::string::npos, "a path ends before the query");
    return out;
}

class reader {
  public:
    /// Out: false once the connection is over.
    bool add(std::string_view piece) {
        buffer_.commit(boost::asio::buffer_copy(buffer_.prepare(piece.size()), boost::asio::buffer(piece)));
        arrived_ += piece.size();
        while (parse()) {
            out_.requests.push_back(describe(*parser_, arrived_ - buffer_.size()));
            if (!parser_->keep_alive()) {
                out_.end = connection_reading::ending::closed;
                return false;
            }
            parser_ = std::make_unique<http::request_parser>(limits());
        }
        return out_.end == connection_reading::ending::incomplete;
    }
    connection_reading take() { return std::move(out_); }

  private:
    /// Out: whether a request is complete.
    bool parse() {
        boost::system::error_code ec;
        parser_->read(buffer_, ec);
        if (ec) out_.end = connection_reading::ending::refused;
        return !ec && parser_->is_done();
    }

    boost::beast::flat_buffer buffer_;
    std::unique_ptr<http::request_parser> parser_ = std::make_unique<http::request_parser>(limits());
    std::size_t arrived_ = 0;
    connection_reading out_;
};

struct framing_fields {
    std::vector<std::string> content_lengths, transfer_encodings;
    bool http_1_0 = false;
};

/// Reads the fields of a head that decide where a message ends. Out: empty if a line is malformed.
std::optional<framing_fields> read_framing(std::string_view head) {
    framing_fields out;
    std::string* value = nullptr;
    for (bool first = true; !head.empty(); first = false) {
        const std::size_t end = head.find("\r\n");
        const std::string_view line = head.substr(0, end);
        head = end == std::string_view::npos ? std::string_view{} : head.substr(end + 2);
        if (line.find_first_of("\r\n") != std::string_view::npos) return std::nullopt;
        if (first) {
            out.http_1_0 = line.ends_with(" HTTP/1.0");
            continue;
        }
        if (line.starts_with(' ') || line.starts_with('\t')) {
            if (value != nullptr) value->append(" ").append(trim(line));  // a folded line
            continue;
        }
        const std::size_t colon = line.find(':');
        if (colon == std::string_view::npos || line.substr(0, colon).find_first_of(" \t") != std::string_view::npos)
            return std::nullopt;
        const std::string name = lower_case(line.substr(0, colon));
        value = nullptr;
        if (name == "content-length") value = &out.content_lengths.emplace_back(trim(line.substr(colon + 1)));
        if (name == "transfer-encoding") value = &out.transfer_encodings.emplace_back(trim(line.substr(colon + 1)));
    }
    return out;
}

std::optional<std::size_t> read_number(std::string_view digits, int base) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return value;
}

/// Reads Content-Length. Several values are allowed if they are the same number (RFC 9110, 8.6).
std::optional<std::size_t> read_length(const std::vector<std::string>& fields) {
    std::optional<std::size_t> length;
    for (std::string_view rest : fields) {
        do {
            const auto value = read_number(trim(take_until(rest, ',')), 10);
            if (!value || (length && *length != *value)) return std::nullopt;
            length = value;
        } while (!rest.empty());
    }
    return length;
}

message_frame read_chunks(std::string_view bytes, std::size_t at) {
    using kind = message_frame::kind;
    message_frame out;
    for (;;) {
        const std::size_t line_end = bytes.find("\r\n", at);
        if (line_end == std::string_view::npos) return {kind::incomplete, 0, {}};
        std::string_view line = bytes.substr(at, line_end - at);
        const auto size = read_number(trim(line.substr(0, line.find(';'))), 16);
        if (!size) return {kind::invalid, 0, {}};
        at = line_end + 2;
        if (*size == 0) break;
        if (*size > bytes.size() || bytes.size() - at < *size + 2) return {kind::incomplete, 0, {}};
        out.body += bytes.substr(at, *size);
        if (bytes.substr(at + *size, 2) != "\r\n") return {kind::invalid, 0, {}};
        at += *size + 2;
    }
    for (;;) {  // the trailer
        const std::size_t line_end = bytes.find("\r\n", at);
        if (line_end == std::string_view::npos) return {kind::incomplete, 0, {}};
        const bool is_last = line_end == at;
        at = line_end + 2;
        if (!is_last) continue;
        out.found = kind::complete;
        out.end = at;
        return out;
    }
}

}  // namespace

connection_reading read_connection(const std::vector<std::string_view>& pieces) {
    reader connection;
    for (const std::string_view piece : pieces) {
        if (!connection.add(piece)) break;
    }
    return connection.take();
}

message_frame read_frame(std::string_view bytes) {
    using kind = message_frame::kind;
    std::size_t head_at = 0;  // empty lines before a request are ignored (RFC 9112, 2.2)
    while (bytes.substr(head_at).starts_with("\r\n"))
        head_at += 2;
    const std::size_t head_end = bytes.find("\r\n\r\n", head_at);
    if (head_end == std::string_view::npos) return {kind::incomplete, 0, {}};
    const auto fields = read_framing(bytes.substr(head_at, head_end - head_at));
    const std::size_t body_at = head_end + 4;
    if (!fields) return {};
    if (!fields->transfer_encodings.empty()) {
        const bool is_chunked =
            fields->transfer_encodings.size() == 1 && lower_case(trim(fields->transfer_encodings.front())) == "chunked";
        if (!is_chunked || !fields->content_lengths.empty() || fields->http_1_0) return {};
        return read_chunks(bytes, body_at);
    }
    if (fields->content_lengths.empty()) return {kind::complete, body_at, {}};
    const auto size = read_length(fields->content_lengths);
    if (!size) return {};
    if (*size > bytes.size() - body_at) return {kind::incomplete, 0, {}};
    return {kind::complete, body_at + *size, std::string(bytes.substr(body_at, *size))};
}

std::vector<std::string_view> cut_whole(std::string_view bytes) {
    return {bytes};
}

std::vector<std::string_view> cut_bytes(std::string_view bytes) {
    std::vector<std::string_view> out;
    for (std::size_t at = 0; at < bytes.size(); ++at)
        out.push_back(bytes.substr(at, 1));
    return out;
}

std::vector<std::string_view> cut_by_seed(std::string_view bytes, std::size_t seed) {
    std::vector<std::string_view> out;
    while (!bytes.empty()) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        const std::size_t size = std::min<std::size_t>(1 + (seed >> 33U) % 97, bytes.size());
        out.push_back(bytes.substr(0, size));
        bytes.remove_prefix(size);
    }
    return out;
}

}  // namespace fencegate::fuzz
