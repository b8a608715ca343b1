#pragma once

#include <gateway/api/services.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/http/message.hpp>

namespace fencegate::api {

enum class export_form { ndjson, csv };

/// Streams all matching events, page by page as the caller reads them. At any time one page is in memory, and no
/// connection to PostgreSQL is held between two pages. Later events are not part of the answer. If a page cannot be
/// read or the gateway stops, the answer ends without its last chunk, so that the caller sees that it is incomplete.
http::awaitable_response export_history(const gateway_services& services, history_query query, export_form form,
                                        http::request r);

}  // namespace fencegate::api
