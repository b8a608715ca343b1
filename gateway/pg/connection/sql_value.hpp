#pragma once

#include <gateway/pg/connection/pqxx_compat.hpp>

#include <boost/json/value.hpp>
#include <boost/system/result.hpp>

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

}  // namespace fencegate::pg
