#include <gateway/api/service/openapi.hpp>

#include <gateway/config/config.hpp>
#include <gateway/http/codec/accept.hpp>
#include <gateway/http/codec/gzip.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <gateway/api/service/openapi_json.hpp>

namespace fencegate::api {
namespace {

/// Returns the document in the format of gzip, made once: this address needs no credential.
const std::string& compressed_document() {
    static const std::string made = [] {
        std::string out;
        http::gzip_encoder().add(openapi_document(), true, out);
        return out;
    }();
    return made;
}

}  // namespace

std::string_view openapi_document() {
    return embedded::file("openapi.json");
}

http::awaitable_response show_openapi(const gateway_services& services, http::request r) {
    const std::size_t bytes_min = services.settings.http.gzip_min_bytes;
    const bool is_compressed =
        bytes_min > 0 && openapi_document().size() >= bytes_min && http::prefers_gzip(r.header_list("accept-encoding"));
    http::response out = http::json_response(is_compressed ? compressed_document() : std::string(openapi_document()));
    if (is_compressed) out.headers.emplace_back("Content-Encoding", "gzip");
    co_return out;
}

}  // namespace fencegate::api
