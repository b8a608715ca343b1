// The bytes of a connection, read by the parser alone: pipelined requests, bodies by length and in chunks.
#include "fuzz.hpp"
#include "http_reading.hpp"

#include <algorithm>
#include <functional>

namespace fencegate::fuzz {
namespace {

/// Checks that two readings of the same bytes found the same requests.
/// A faulty message may be refused before or after its last byte,
/// and whether a chunk's header or a trailer exceeds the limit may depend on how it arrives.
void check_same(std::string_view input, const connection_reading& a, const connection_reading& b) {
    using ending = connection_reading::ending;
    const std::size_t common = std::min(a.requests.size(), b.requests.size());
    for (std::size_t i = 0; i < common; ++i) {
        require(a.requests[i].text == b.requests[i].text && a.requests[i].end == b.requests[i].end,
                "requests are the same whichever way the bytes arrive");
    }
    const bool is_refused = a.end == ending::refused || b.end == ending::refused;
    if (a.requests.size() == b.requests.size()) {
        const bool is_closed = a.end == ending::closed || b.end == ending::closed;
        return require(a.end == b.end || (is_refused && !is_closed),
                       "a connection ends in the same way whichever way the bytes arrive");
    }
    const connection_reading& shorter = a.requests.size() == common ? a : b;
    const std::size_t begin = common == 0 ? 0 : shorter.requests.back().end;
    require(shorter.end == ending::refused && input.size() - begin > header_max_bytes,
            "the number of requests is the same whichever way the bytes arrive");
}

}  // namespace

void run_input(std::string_view input) {
    const auto whole = read_connection(cut_whole(input));
    check_same(input, whole, read_connection(cut_bytes(input)));
    check_same(input, whole, read_connection(cut_by_seed(input, std::hash<std::string_view>()(input))));
    std::size_t begin = 0;
    for (const read_request& request : whole.requests) {
        const message_frame frame = read_frame(input.substr(begin));
        require(frame.found == message_frame::kind::complete, "only messages whose end is unambiguous are accepted");
        require(begin + frame.end == request.end, "a message ends where RFC 9112 says, so that nothing is smuggled");
        require(frame.body == request.body, "a body is what RFC 9112 says");
        begin = request.end;
    }
}

}  // namespace fencegate::fuzz
