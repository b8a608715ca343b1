#pragma once

#include <gateway/domain/failure.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::http {

/// Collects the faults of a request, so that its caller learns of all of them at once.
class fault_list {
  public:
    /// More are counted, not kept.
    static constexpr std::size_t kept_max = 64;

    void add(std::string pointer, std::string detail);
    bool empty() const { return faults_.empty(); }
    /// errc::invalid_request with all of them.
    failure to_failure() &&;

  private:
    std::vector<field_error> faults_;
    std::size_t left_out_ = 0;
};

struct integer_bounds {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
};

/// Reads the typed fields of one JSON object. A field that is absent is empty; one that is faulty is noted and empty
/// too, so that reading goes on. `null` is a fault: leave a field out instead.
///
/// Lifetime: a view; the object, the list of faults and the pointer outlive it.
class object_reader {
  public:
    object_reader(const boost::json::object& object, std::string_view pointer, fault_list& faults)
        : object_(object), pointer_(pointer), faults_(faults) {}

    bool has(std::string_view key) const { return find(key) != nullptr; }
    const boost::json::value* find(std::string_view key) const;
    std::optional<std::int64_t> integer(std::string_view key, integer_bounds bounds) const;
    std::optional<bool> boolean(std::string_view key) const;
    /// 1 to `bytes_max` bytes (or 0, where `may_be_empty`).
    std::optional<std::string_view> text(std::string_view key, std::size_t bytes_max, bool may_be_empty = false) const;
    const boost::json::object* object(std::string_view key) const;
    const boost::json::array* array(std::string_view key) const;

    /// Every field that is not among these is a fault by its name.
    void refuse_unknown(std::initializer_list<std::string_view> known) const;
    void fault(std::string_view key, std::string detail) const;
    std::string pointer_to(std::string_view key) const;

  private:
    const boost::json::object& object_;
    std::string_view pointer_;
    fault_list& faults_;
};

}  // namespace fencegate::http
