#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace fencegate::fuzz {

/// Gives one input to the code under test and checks what it promises. Each target defines it.
void run_input(std::string_view input);

/// Ends the program, so that libFuzzer keeps the input, unless a promise of the code under test holds.
inline void require(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "This promise does not hold: %s\n", promise);
    std::abort();
}

/// Removes the text up to the first `separator` from the front of `rest` and returns it, without the separator.
inline std::string_view take_until(std::string_view& rest, char separator) {
    const std::size_t end = rest.find(separator);
    const std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return part;
}

inline std::string_view take_line(std::string_view& rest) {
    return take_until(rest, '\n');
}

}  // namespace fencegate::fuzz
