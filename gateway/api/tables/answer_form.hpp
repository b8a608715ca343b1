#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/domain/write_request.hpp>
#include <gateway/http/message.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::api {

enum class conflict_resolution { none, merge, ignore };

/// The preferences of a request that tables support; others are ignored.
struct preferences {
    std::optional<bool> representation;                          ///< return=representation: true; minimal: false.
    row_count count = row_count::none;                           ///< count=exact, planned, estimated
    conflict_resolution resolution = conflict_resolution::none;  ///< resolution=merge-duplicates, ignore-duplicates
    bool missing_default = false;                                ///< missing=default; else null.
    std::optional<std::int64_t> max_affected;                    ///< max-affected=N
    std::string applied;  ///< The supported ones, in the form of Preference-Applied.
};

preferences parse_preferences(const http::request& r);

/// The form that Accept asks for.
struct answer_form {
    row_format format = row_format::json;
    bool single = false;  ///< One object in place of an array with exactly one.
    std::string content_type = "application/json";

    /// Whether the form changes what a write does or what is stored of its outcome.
    bool is_default() const { return !single && format == row_format::json; }
};

/// The media types of answers that have rows, the default first.
const std::vector<std::string_view>& row_media_types();

/// Reads the form of a request whose media type was negotiated among row_media_types().
///
/// Errors: errc::not_acceptable for a parameter `nulls` with another value than `stripped`.
result<answer_form> parse_answer_form(const http::request& r);

/// Returns the refusal of an answer that has to have exactly one row.
///
/// In: `outcome`: what has become of the request, as the end of a sentence.
failure not_one_row(std::int64_t rows, std::string_view outcome);

/// Returns the refusal of a request that affects more rows than Prefer: max-affected allows.
failure too_many_rows(std::int64_t most, std::int64_t rows);

/// Removes the brackets around the only element of a JSON array.
void unwrap_single(std::string& json);

/// Adds to a refusal of a request to a table or function the code that PostgREST gives such a refusal, if it has none.
failure with_postgrest_code(failure f);

}  // namespace fencegate::api
