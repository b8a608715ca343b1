#pragma once

#include <gateway/http/codec/fields.hpp>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::http {

/// Maximum number of parameters of one query string.
inline constexpr std::size_t parameters_max = 64;

/// Returns the decoded parameters of a query string (without '?') in order; a name may occur more than once. Faults:
/// malformed percent-encoding, not UTF-8, more than parameters_max, U+0000.
std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query, fault_list& faults);

/// Reads the parameters of a query string. A fault names its parameter and is collected as in object_reader.
class query_reader {
  public:
    /// `query` without '?'. Faults: a parameter that is not among `known`, a repeated one, malformed percent-encoding.
    query_reader(std::string_view query, std::initializer_list<std::string_view> known, fault_list& faults);

    /// Returns the decoded value; empty if absent.
    std::optional<std::string> text(std::string_view name) const;
    std::optional<std::int64_t> integer(std::string_view name, integer_bounds bounds) const;
    /// Reads "true" or "false".
    std::optional<bool> boolean(std::string_view name) const;

  private:
    std::vector<std::pair<std::string, std::string>> parameters_;
    fault_list& faults_;
};

}  // namespace fencegate::http
