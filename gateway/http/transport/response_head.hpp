#pragma once

#include <gateway/http/message.hpp>

#include <string>
#include <string_view>

namespace fencegate::http {

/// What the connection adds to a response.
struct head_additions {
    std::string_view request_id;
    std::string_view date;  ///< A result of to_http_date.
    bool keep_alive = true;
    bool http_1_0 = false;
    std::string_view allowed_origin{};  ///< The origin whose pages may read the answer; empty: none.
    bool varies_by_origin = false;
    bool varies_by_encoding = false;
};

/// Replaces `out` by the status line and the headers of `r`, with the empty line that ends them. Unless `r` has them,
/// adds Cache-Control: no-store, because an answer may contain leases and rows, and X-Content-Type-Options: nosniff.
void render_head(std::string& out, const response& r, const head_additions& add);

/// Returns whether a response of this status may have a body.
bool has_body(unsigned status);

std::string_view reason_of(unsigned status);

}  // namespace fencegate::http
