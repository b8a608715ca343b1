// The mutations of HTTP connections. libFuzzer's own mutations seldom keep a message whole,
// so most of these work on lines, fields, chunks and whole requests: well-formed ones and such
// that one reader may take for another's.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace fencegate::fuzz {
namespace {

using random_numbers = std::minstd_rand;

constexpr std::array<std::string_view, 46> fields{"Content-Length: 0",
                                                  "Content-Length: 4",
                                                  "Content-Length: 5",
                                                  "Content-Length: 44",
                                                  "Content-Length: +4",
                                                  "Content-Length: 4, 4",
                                                  "Content-Length: 4,5",
                                                  "Content-Length: 0x4",
                                                  "Content-Length: 04",
                                                  "Content-Length: -1",
                                                  "Content-Length: 99999999999999999999",
                                                  "Content-Length:",
                                                  "Content-Length : 4",
                                                  "content-length:\t4",
                                                  "Transfer-Encoding: chunked",
                                                  "Transfer-Encoding: Chunked",
                                                  "Transfer-Encoding: chunked, chunked",
                                                  "Transfer-Encoding: gzip, chunked",
                                                  "Transfer-Encoding: chunked, identity",
                                                  "Transfer-Encoding: identity",
                                                  "Transfer-Encoding: xchunked",
                                                  "Transfer-Encoding:\x0b"
                                                  "chunked",
                                                  "Transfer-Encoding: \"chunked\"",
                                                  "Transfer-Encoding : chunked",
                                                  "Transfer-Encoding:",
                                                  "Transfer_Encoding: chunked",
                                                  " folded",
                                                  "\tchunked",
                                                  " ",
                                                  "Host: a",
                                                  "Host: 127.0.0.1",
                                                  "Host:",
                                                  "Host : b",
                                                  "Connection: close",
                                                  "Connection: keep-alive",
                                                  "Connection: upgrade",
                                                  "Connection: Transfer-Encoding",
                                                  "Upgrade: h2c",
                                                  "Expect: 100-continue",
                                                  "Authorization: Bearer k",
                                                  "X-Api-Key: k",
                                                  "Idempotency-Key: i",
                                                  "Content-Type: application/json",
                                                  "Trailer: Host",
                                                  "X-A: b\rX-B: c",
                                                  "X-A: b\nX-B: c"};

constexpr std::array<std::string_view, 16> first_lines{"GET /echo HTTP/1.1",      "POST /echo HTTP/1.1",
                                                       "POST /echo?a=b HTTP/1.1", "HEAD /echo HTTP/1.1",
                                                       "DELETE /x/y HTTP/1.1",    "OPTIONS /echo HTTP/1.1",
                                                       "POST /echo HTTP/1.0",     "GET http://127.0.0.1/echo HTTP/1.1",
                                                       "GET /none HTTP/1.1",      "PUT /echo HTTP/1.1",
                                                       "POST  /echo HTTP/1.1",    "POST /echo HTTP/1.2",
                                                       "GET /x/%2e%2e HTTP/1.1",  "POST /echo#part HTTP/1.1",
                                                       "\r\nPOST /echo HTTP/1.1", "\r\n\r\nGET /echo HTTP/1.1"};

constexpr std::array<std::string_view, 14> chunk_lines{"0",  "00", "4;a=b", "4;a=\"\\\"\r\n\"", "0x4", "+4",  "-1",
                                                       "4 ", " 4", "4\t",   "FFFFFFFFFFFFFFFF", "g",   "4\n", "4;"};

template <std::size_t N>
std::string_view choose(const std::array<std::string_view, N>& from, random_numbers& next) {
    return from[next() % N];
}

/// A connection's text as lines, each with its end.
std::vector<std::string> split_lines(std::string_view text) {
    std::vector<std::string> out;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::size_t size = end == std::string_view::npos ? text.size() : end + 1;
        out.emplace_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return out;
}

std::string join(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines)
        out += line;
    return out;
}

std::string hexadecimal(std::size_t value) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string out;
    do {
        out.insert(out.begin(), digits[value % 16]);
        value /= 16;
    } while (value > 0);
    return out;
}

std::string make_body(random_numbers& next) {
    constexpr std::array<std::string_view, 6> bodies{"",         "{}",        "body",
                                                     "\r\n\r\n", "0\r\n\r\n", "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"};
    return std::string(choose(bodies, next));
}

std::string make_chunks(random_numbers& next) {
    std::string out;
    for (unsigned left = next() % 4; left > 0; --left) {
        const std::string body = make_body(next);
        if (body.empty()) continue;
        out += hexadecimal(body.size()) + (next() % 4 == 0 ? ";x=y" : "") + "\r\n" + body + "\r\n";
    }
    out += "0\r\n";
    if (next() % 3 == 0) out.append(choose(fields, next)).append("\r\n");
    return out + "\r\n";
}

/// Returns a whole request; mostly a well-formed one.
std::string make_request(random_numbers& next) {
    std::string out(next() % 2 == 0 ? "POST /echo HTTP/1.1" : choose(first_lines, next));
    out += "\r\nHost: 127.0.0.1\r\n";
    if (next() % 3 == 0) out.append(choose(fields, next)).append("\r\n");
    const unsigned framing = next() % 5;
    if (framing < 2) {
        out += "Transfer-Encoding: chunked\r\n\r\n" + make_chunks(next);
    } else if (framing < 4) {
        const std::string body = make_body(next);
        out += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    } else {
        out += "\r\n";
    }
    return out;
}

std::string assemble(random_numbers& next) {
    std::string out;
    for (unsigned left = 1 + next() % 4; left > 0; --left)
        out += make_request(next);
    return out;
}

void mutate_lines(std::vector<std::string>& lines, random_numbers& next) {
    if (lines.empty()) lines.push_back(make_request(next));
    const std::size_t at = next() % lines.size();
    const auto place = lines.begin() + static_cast<std::ptrdiff_t>(at);
    switch (next() % 10) {
        case 0:
        case 1:
            lines.insert(place, std::string(choose(fields, next)) + "\r\n");
            break;
        case 2:
            lines.insert(place, lines[next() % lines.size()]);
            break;
        case 3:
            lines.erase(place);
            break;
        case 4:
            std::swap(*place, lines[next() % lines.size()]);
            break;
        case 5:
            *place = std::string(choose(first_lines, next)) + "\r\n";
            break;
        case 6:
            *place = std::string(choose(chunk_lines, next)) + "\r\n";
            break;
        case 7:
            lines.insert(place, make_chunks(next));
            break;
        case 8:
            if (place->ends_with("\r\n")) place->replace(place->size() - 2, 2, next() % 2 == 0 ? "\n" : "\r");
            break;
        default:
            lines.insert(next() % 2 == 0 ? place : lines.end(), make_request(next));
    }
}

std::size_t store(const std::string& text, std::uint8_t* data, std::size_t size_max) {
    const std::size_t size = std::min(text.size(), size_max);
    std::memcpy(data, text.data(), size);
    return size;
}

std::string_view view(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

}  // namespace
}  // namespace fencegate::fuzz

using namespace fencegate::fuzz;

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max,
                                               unsigned seed) {
    random_numbers next(seed);
    const unsigned choice = next() % 8;
    if (choice < 2) return LLVMFuzzerMutate(data, size, size_max);
    if (choice == 2) return store(assemble(next), data, size_max);
    auto lines = split_lines(view(data, size));
    for (unsigned left = 1 + next() % 3; left > 0; --left)
        mutate_lines(lines, next);
    return store(join(lines), data, size_max);
}

/// Joins the first lines of one connection and the last lines of another.
extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* data, std::size_t size, const std::uint8_t* other,
                                                 std::size_t other_size, std::uint8_t* out, std::size_t size_max,
                                                 unsigned seed) {
    random_numbers next(seed);
    auto lines = split_lines(view(data, size));
    const auto last = split_lines(view(other, other_size));
    if (!lines.empty()) lines.resize(next() % lines.size() + 1);
    if (!last.empty())
        lines.insert(lines.end(), last.begin() + static_cast<std::ptrdiff_t>(next() % last.size()), last.end());
    return store(join(lines), out, size_max);
}
