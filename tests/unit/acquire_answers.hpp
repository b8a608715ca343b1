#pragma once

#include "node_number.hpp"

#include <proto/acquire_machine.hpp>

#include <string>

namespace lockcore {

inline node_reply answer(reply_status status, std::uint64_t value = 0, milliseconds left = milliseconds{0}) {
    node_reply r;
    r.status = status;
    r.value = value;
    r.remaining = left;
    return r;
}
inline node_reply ok(std::uint64_t counter) {
    return answer(reply_status::ok, counter);
}
inline node_reply held(milliseconds left = milliseconds{500}) {
    return answer(reply_status::held, 7, left);
}
inline node_reply stale(std::uint64_t counter) {
    return answer(reply_status::stale, counter);
}
inline node_reply status_reply(reply_status s) {
    return answer(s);
}

inline std::string nodes_of(const acquire_machine::step& s) {
    std::string text;
    for (std::size_t n = 0; n < nodes_max; ++n) {
        if (s.targets[n]) text += static_cast<char>('0' + n);
    }
    return text;
}

/// Returns a node's answer with the holder's own lease: its attempt and its token.
inline node_reply own(char attempt, unsigned token, milliseconds left = milliseconds{500}) {
    node_reply r = answer(reply_status::own, 0, left);
    r.text = std::string(32, attempt) + ' ' + std::to_string(token) + " 0 1000 0 5 -\np\nme\n\n\n\n";
    return r;
}

}  // namespace lockcore
