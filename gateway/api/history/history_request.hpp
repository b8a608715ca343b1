#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/history_item.hpp>

#include <string_view>

namespace fencegate::api {

/// In which form the history is asked for, which decides what else may be said.
enum class history_form {
    page,    ///< `order`, `cursor`, and `limit` for a page.
    whole,   ///< `order`, `cursor`, and `limit` for the whole answer; without, all there is.
    stream,  ///< What is still to come: only filters.
};

/// `limit` of the query is that of the page, or of the whole answer.
///
/// Errors: errc::invalid_request with every fault.
result<history_query> parse_history_query(std::string_view query, history_form form = history_form::page);

/// Without `from`: an hour; without `to`: until now; without `bucket_ms`: a minute. Errors: errc::invalid_request, also
/// for more than 2,000 buckets.
result<history_summary_query> parse_history_summary(std::string_view query, std::chrono::system_clock::time_point now);

}  // namespace fencegate::api
