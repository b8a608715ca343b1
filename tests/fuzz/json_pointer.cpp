// JSON pointers of faults: the lines of the input are the keys.
#include "fuzz.hpp"

#include <gateway/http/codec/json_pointer.hpp>

#include <string>
#include <vector>

namespace fencegate::fuzz {
namespace {

/// Reads a pointer as RFC 6901 says.
std::vector<std::string> read_pointer(std::string_view pointer) {
    std::vector<std::string> keys;
    if (pointer.empty()) return keys;
    require(pointer.front() == '/', "a pointer begins with a slash");
    keys.emplace_back();
    for (std::size_t i = 1; i < pointer.size(); ++i) {
        if (pointer[i] == '/') {
            keys.emplace_back();
        } else if (pointer[i] == '~') {
            ++i;
            require(i < pointer.size() && (pointer[i] == '0' || pointer[i] == '1'), "a tilde begins an escape");
            keys.back() += pointer[i] == '0' ? '~' : '/';
        } else {
            keys.back() += pointer[i];
        }
    }
    return keys;
}

}  // namespace

void run_input(std::string_view input) {
    std::vector<std::string> keys;
    std::string pointer;
    for (std::string_view rest = input; !rest.empty();) {
        keys.emplace_back(take_line(rest));
        pointer = http::child_pointer(pointer, keys.back());
        if (keys.back().size() % 3 != 0) continue;
        pointer = http::child_pointer(pointer, keys.size());
        keys.push_back(std::to_string(keys.size()));
    }
    require(read_pointer(pointer) == keys, "a pointer names the keys of which it was made");
    const std::string shortened = http::shorten_pointer(pointer);
    constexpr std::string_view ellipsis = "…";
    require(shortened.size() <= 1024 + ellipsis.size(), "a shortened pointer is bounded");
    const bool is_cut = shortened != pointer;
    require(is_cut == (pointer.size() > 1024), "only a long pointer is shortened");
    if (is_cut)
        require(pointer.starts_with(shortened.substr(0, shortened.size() - ellipsis.size())),
                "a shortened pointer is a beginning");
}

}  // namespace fencegate::fuzz
