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

/// Most parameters of one statement; the protocol counts them in 16 bits.
inline constexpr std::size_t parameters_max = 60'000;

/// A statement with bound parameters.
struct statement {
    std::string sql;
    compat::parameters parameters;
    /// Where their values stood in the request. May be shorter: the last ones came from nowhere.
    std::vector<std::string> pointers;

    /// Adds a parameter and gives its placeholder.
    std::string bind(std::optional<std::string> value);
};

/// Why a value can't become what a type takes; a sentence for the caller.
struct value_fault {
    /// Comes first so that a text, which is a value, does not turn into a fault by itself.
    bool refused = true;
    std::string detail;

    static value_fault because(std::string detail) { return {true, std::move(detail)}; }
};
[[noreturn]] inline void throw_exception_from_error(const value_fault& f, const boost::source_location&) {
    throw std::logic_error("unchecked fault: " + f.detail);
}
template <class T>
using value_result = boost::system::result<T, value_fault>;

/// `"name"`, with quotes inside doubled.
std::string quote_identifier(std::string_view name);

/// `{"a","b"}`, the text of a PostgreSQL array of these texts.
std::string array_literal(const std::vector<std::string>& items);

/// A value as JSON text; exact numbers by their digits.
std::string json_text(const boost::json::value& value);

/// The same for a column of the type, when a record is read from JSON: whole numbers as by scalar_text.
std::string json_text(const boost::json::value& value, std::string_view type);

/// A scalar as PostgreSQL reads it. Numbers keep their digits, but that a whole one, 1.0 or 1e5, is written as an
/// integer unless the type is `numeric`: integer types read nothing else. A text with a NUL is refused.
value_result<std::string> scalar_text(const boost::json::value& value, std::string_view type);

/// The type for a cast that changes no value: without length or precision, so that a text that is too long is refused
/// by the column rather than cut off by the cast (an explicit cast to varchar(3) cuts silently, character without a
/// length means one character).
std::string cast_type(std::string_view type);

/// Whether values of the type are JSON texts.
bool is_json_type(std::string_view type);
bool is_array_type(std::string_view type);

/// Binds `value` and gives the SQL expression for it. NULL for JSON null. Scalars are bare placeholders, whose type
/// PostgreSQL takes from where they stand: the assigned column, the other side of a comparison. Arrays become array
/// literals; composite types, and arrays of an application's types, go through json_to_record.
value_result<std::string> bind_value(statement& into, std::string_view type, const boost::json::value& value);

/// Binds an array of scalars, null or arrays of them, as an array literal.
value_result<std::string> bind_list(statement& into, std::string_view element, const boost::json::array& items);

}  // namespace fencegate::pg
