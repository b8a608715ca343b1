// The bytes of a connection, read by the parser alone: pipelined requests, bodies by length and in chunks.
#include "fuzz.hpp"
#include "http_reading.hpp"

#include <functional>

namespace fencegate::fuzz {
namespace {

/// Two readings agree if they found the same requests and ended alike.
void check_same(const connection_reading& a, const connection_reading& b) {
    bool same = a.requests.size() == b.requests.size() && a.end == b.end;
    for (std::size_t i = 0; same && i < a.requests.size(); ++i)
        same = a.requests[i].text == b.requests[i].text && a.requests[i].end == b.requests[i].end;
    require(same, "requests are the same whichever way the bytes arrive");
}

}  // namespace

void run_input(std::string_view input) {
    const auto whole = read_connection(cut_whole(input));
    check_same(whole, read_connection(cut_bytes(input)));
    check_same(whole, read_connection(cut_by_seed(input, std::hash<std::string_view>()(input))));
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
