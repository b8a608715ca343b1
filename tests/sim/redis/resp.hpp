#pragma once

#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sim {

/// A reply of Redis.
struct redis_reply {
    enum class kind : std::uint8_t { nil, status, error, integer, text, array };
    kind type = kind::nil;
    std::string text;  ///< Of a status, an error or a text.
    std::int64_t number = 0;
    std::vector<redis_reply> elements;

    void set(kind k, std::string_view t) {
        type = k;
        text.assign(t);
    }
    void set_number(std::int64_t n) {
        type = kind::integer;
        number = n;
    }
    bool is_error() const { return type == kind::error; }
    friend bool operator==(const redis_reply&, const redis_reply&) = default;
};

/// The arguments of a command, its name first.
using redis_arguments = std::vector<std::string_view>;

/// Parses one command in RESP; the arguments point into `resp`, from which the command is removed.
inline void parse_command(std::string_view& resp, redis_arguments& out) {
    const auto number_after = [&resp](char sign) {
        std::size_t n = 0;
        const auto [end, error] = std::from_chars(resp.data() + 1, resp.data() + resp.size(), n);
        if (resp.empty() || resp.front() != sign || error != std::errc{}) throw std::runtime_error("not RESP");
        resp.remove_prefix(static_cast<std::size_t>(end - resp.data()) + 2);
        return n;
    };
    out.resize(number_after('*'));
    for (std::string_view& argument : out) {
        const std::size_t size = number_after('$');
        argument = resp.substr(0, size);
        resp.remove_prefix(size + 2);
    }
}

}  // namespace sim
