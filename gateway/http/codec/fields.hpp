#pragma once

#include <gateway/domain/failure.hpp>

#include <lockcore/types.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::http {

/// Collects the faults of a request, so that one answer reports all of them.
class fault_list {
  public:
    /// Keeps field_errors_max faults, with shortened pointers; further ones are only counted.
    void add(std::string pointer, std::string detail);
    bool empty() const { return faults_.empty(); }
    /// Returns errc::invalid_request with all faults.
    failure to_failure() &&;

  private:
    std::vector<field_error> faults_;
    std::size_t left_out_ = 0;
};

/// Returns the failure of a request that names something of another cell; `subject`: what was sent, as "The cursor".
failure other_cell_failure(std::string_view subject, lockcore::cell_id named, lockcore::cell_id own);

struct integer_bounds {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
};

/// Returns a fault such as "is not a field of this request; there are resource, ttl_ms".
std::string describe_unknown_name(std::string_view kind, std::initializer_list<std::string_view> known);

/// Reads the typed fields of one JSON object. An absent field reads as empty. A faulty field is added to the faults and
/// reads as empty too, so that reading continues. `null` is a fault: a caller has to leave the field out.
///
/// Lifetime: the object, the list of faults and the pointer outlive it.
class object_reader {
  public:
    object_reader(const boost::json::object& object, std::string_view pointer, fault_list& faults)
        : object_(object), pointer_(pointer), faults_(faults) {}

    bool has(std::string_view key) const { return find(key) != nullptr; }
    const boost::json::value* find(std::string_view key) const;
    std::optional<std::int64_t> integer(std::string_view key, integer_bounds bounds) const;
    std::optional<bool> boolean(std::string_view key) const;
    /// Returns a string of 1 to `bytes_max` bytes (of 0 bytes too if `may_be_empty`).
    std::optional<std::string_view> text(std::string_view key, std::size_t bytes_max, bool may_be_empty = false) const;
    const boost::json::object* object(std::string_view key) const;
    const boost::json::array* array(std::string_view key) const;

    /// Adds a fault for every field that is not among `known`.
    void refuse_unknown(std::initializer_list<std::string_view> known) const;
    void fault(std::string_view key, std::string detail) const;
    std::string pointer_to(std::string_view key) const;

  private:
    void type_fault(std::string_view key, const boost::json::value& given, const std::string& wanted) const;

    const boost::json::object& object_;
    std::string_view pointer_;
    fault_list& faults_;
};

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
