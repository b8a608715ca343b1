#pragma once

#include <gateway/http/message.hpp>

#include <string>
#include <string_view>

namespace fencegate::http {

/// What the connection adds to a response.
struct head_additions {
    std::string_view request_id;
    std::string_view date;  ///< As to_http_date gives it.
    bool keep_alive = true;
    bool http_1_0 = false;
};

/// Replaces `out` by the status line and the headers of `r`, with the empty line that ends them. An answer that says
/// nothing of caching is not to be stored, for it may hold leases and rows, and no browser is to guess its type.
void render_head(std::string& out, const response& r, const head_additions& add);

/// Whether a response of this status may have a body.
bool has_body(unsigned status);

std::string_view reason_of(unsigned status);

}  // namespace fencegate::http
