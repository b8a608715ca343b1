#pragma once

#include <gateway/pg/connection/sql_value.hpp>

#include <string>

namespace fencegate::pg {

/// Returns the condition that a resource at or after the prefix begins with it: in the column's collation "C" these are
/// the names before the prefix whose last byte is one higher. Where no text has that byte, the names are compared.
inline std::string prefix_end(statement& target, std::string prefix) {
    constexpr unsigned char last_ascii = 0x7f;
    if (prefix.empty() || static_cast<unsigned char>(prefix.back()) >= last_ascii)
        return "starts_with(resource, " + target.bind(std::move(prefix)) + ")";
    ++prefix.back();
    return "resource < " + target.bind(std::move(prefix));
}

}  // namespace fencegate::pg
