#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

enum class export_form { ndjson, csv };

/// The whole answer, page by page as the caller takes it: at any time one page is in memory, and no connection to
/// PostgreSQL is held between two. What happens while it is under way is not in it. Where a page can't be read, or the
/// gateway stops, the answer ends without its last chunk, so that the caller sees that it is not whole.
boost::asio::awaitable<http::response> export_history(services with, history_query query, export_form form,
                                                      http::request r);

}  // namespace fencegate::api
