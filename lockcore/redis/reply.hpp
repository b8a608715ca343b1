#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockcore::redis {

/// A reply of a Redis server.
struct reply {
    enum class kind : std::uint8_t { nil, text, number, error, array };
    kind type = kind::nil;
    std::string text;  ///< Of text (also a status) and error.
    std::int64_t number = 0;
    std::vector<reply> elements;

    bool is_error() const { return type == kind::error; }
};

}  // namespace lockcore::redis
