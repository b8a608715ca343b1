#pragma once

#include <gateway/pg/connection/pqxx_compat.hpp>

#include <boost/json/value.hpp>
#include <boost/system/result.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Maximum number of parameters of one statement; PostgreSQL's protocol counts them in 16 bits.
inline constexpr std::size_t parameters_max = 60'000;

/// A statement with bound parameters.
struct statement {
    std::string sql;
    compat::parameters parameters;
    /// Where the request has the parameters' values. May be shorter than `parameters`: the last ones are not from the
    /// request.
    std::vector<std::string> pointers;

    /// Adds a parameter and returns its placeholder.
    std::string bind(std::optional<std::string> value);
};

/// Why a value does not fit a type; `detail` is a sentence for the caller.
struct value_fault {
    /// The first member, so that a string (a valid value) does not convert to a value_fault.
    bool refused = true;
    std::string detail;

    static value_fault because(std::string detail) { return {true, std::move(detail)}; }
};
[[noreturn]] inline void throw_exception_from_error(const value_fault& f, const boost::source_location&) {
    throw std::logic_error("unchecked fault: " + f.detail);
}
template <class T>
using value_result = boost::system::result<T, value_fault>;

/// Returns `"name"`, with quotes inside doubled.
std::string quote_identifier(std::string_view name);

/// Returns `{"a","b"}`, the text of a PostgreSQL array of these texts.
std::string array_literal(const std::vector<std::string>& items);

/// Returns a value as JSON text, exact numbers with their digits.
std::string json_text(const boost::json::value& value);

/// Returns a value as JSON text for a column of the type that is read from a JSON record; whole numbers have the form
/// of scalar_text.
std::string json_text(const boost::json::value& value, std::string_view type);

/// Returns a scalar as PostgreSQL reads it. Numbers keep their digits, except that a whole number such as 1.0 or 1e5 is
/// written as an integer unless the type is `numeric`: integer types accept no other form.
/// A text with U+0000 is refused.
value_result<std::string> scalar_text(const boost::json::value& value, std::string_view type);

/// Returns the type for a cast that changes no value: without length or precision, so that the column refuses a text
/// that is too long instead of the cast cutting it (an explicit cast to varchar(3) cuts silently, and `character`
/// without a length means one character).
std::string cast_type(std::string_view type);

/// Whether values of the type are JSON texts.
bool is_json_type(std::string_view type);
bool is_array_type(std::string_view type);

/// Binds `value` and returns the SQL expression for it. JSON null becomes NULL. Scalars are placeholders without a
/// cast, whose type PostgreSQL infers from the context: the assigned column, the other side of a comparison. Arrays
/// become array literals; composite types, and arrays of an application's types, are read by json_to_record.
value_result<std::string> bind_value(statement& target, std::string_view type, const boost::json::value& value);

/// Binds an array of scalars, nulls or nested arrays as an array literal, and returns its placeholder.
value_result<std::string> bind_list(statement& target, std::string_view element, const boost::json::array& items);

/// Builds the text of an array parameter, element by element.
class array_text {
  public:
    void add_null() { begin("NULL"); }

    /// Adds the text without U+0000, which PostgreSQL's texts can't contain.
    void add(std::string_view item) {
        begin("\"");
        for (const char c : item) {
            if (c == '\0') continue;
            if (c == '"' || c == '\\') text_ += '\\';
            text_ += c;
        }
        text_ += '"';
        all_null_ = false;
    }

    void add_or_null(const std::optional<std::string>& item) { item ? add(std::string_view(*item)) : add_null(); }

    /// Adds the text, or NULL where it is empty.
    void add_unless_empty(std::string_view item) { item.empty() ? add_null() : add(item); }

    template <std::integral Integer>
    void add(Integer item) {
        std::array<char, 24> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), item).ptr;
        begin({digits.data(), static_cast<std::size_t>(end - digits.data())});
        all_null_ = false;
    }

    /// Returns the text of the array. At least one element must have been added.
    std::string take() { return std::move(text_) + '}'; }

    /// Returns the text of the array; empty if every element is NULL.
    std::optional<std::string> take_unless_null() { return all_null_ ? std::nullopt : std::optional(take()); }

  private:
    void begin(std::string_view element) {
        text_ += text_.empty() ? '{' : ',';
        text_ += element;
    }

    std::string text_;
    bool all_null_ = true;
};

/// Returns a moment as text with microseconds, for a parameter `::timestamptz`. A time that SQL computes from a number
/// depends on the session's settings, so that the planner would not know its value and would plan for every partition.
std::string sql_time(std::chrono::sys_time<std::chrono::microseconds> at);

inline std::string sql_time(std::chrono::system_clock::time_point at) {
    return sql_time(std::chrono::floor<std::chrono::microseconds>(at));
}

}  // namespace fencegate::pg
