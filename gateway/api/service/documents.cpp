#include <gateway/api/routes.hpp>

#include <gateway/config/config.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/http/codec/gzip.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>

#include <gateway/api/service/console_files.hpp>
#include <gateway/api/service/openapi_json.hpp>

#include <algorithm>
#include <iterator>
#include <vector>

namespace fencegate::api {
namespace {

/// Returns the document in the format of gzip, made once: this address needs no credential.
const std::string& compressed_document() {
    static const std::string made = [] {
        std::string out;
        http::gzip_encoder().add_last(openapi_document(), out);
        return out;
    }();
    return made;
}

/// Allows only the gateway's own files, and no text as markup or code (trusted types).
constexpr std::string_view content_security_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

std::string_view type_of(std::string_view name) {
    if (name.ends_with(".html")) return "text/html; charset=utf-8";
    if (name.ends_with(".css")) return "text/css; charset=utf-8";
    return "text/javascript; charset=utf-8";
}

/// Returns a strong ETag: the first half of the SHA-256.
std::string etag_of(std::string_view text) {
    return '"' + sha256_hex(text).substr(0, 32) + '"';
}

const std::string& etag_at(std::size_t index) {
    static const std::vector<std::string> etags = [] {
        std::vector<std::string> out;
        for (const auto& file : console::files)
            out.push_back(etag_of(file.text));
        return out;
    }();
    return etags[index];
}

/// Returns whether If-None-Match names the ETag (RFC 9110, 13.1.2); a weak form of it counts too.
bool etag_matches(std::string_view if_none_match, std::string_view etag) {
    return if_none_match == "*" || if_none_match.find(etag) != std::string_view::npos;
}

result<http::response> serve(std::string_view name, const http::request& r) {
    const auto found = std::ranges::find(console::files, name, &console::embedded_file::name);
    if (found == std::end(console::files)) return make_failure(errc::not_found, "The console has no such file.");
    const std::string& etag = etag_at(static_cast<std::size_t>(found - std::begin(console::files)));
    http::response out;
    out.headers = {{"Content-Security-Policy", std::string(content_security_policy)},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cross-Origin-Opener-Policy", "same-origin"},
                   {"Cache-Control", "no-cache"},
                   {"ETag", etag}};
    if (etag_matches(r.header_list("if-none-match"), etag)) {
        out.status = 304;
        return out;
    }
    out.content_type = type_of(name);
    out.body = found->text;
    return out;
}

}  // namespace

std::string_view openapi_document() {
    return embedded::file("openapi.json");
}

http::awaitable_response show_openapi(const state_services& services, http::request r) {
    const std::size_t bytes_min = services.settings.http.gzip_min_bytes;
    const bool is_compressed =
        bytes_min > 0 && openapi_document().size() >= bytes_min && http::prefers_gzip(r.header_list("accept-encoding"));
    http::response out = http::json_response(is_compressed ? compressed_document() : std::string(openapi_document()));
    if (is_compressed) out.headers.emplace_back("Content-Encoding", "gzip");
    co_return out;
}

http::awaitable_response show_console(const state_services&, http::request r) {
    co_return serve("index.html", r);
}

http::awaitable_response show_console_file(const state_services&, http::request r) {
    co_return serve(r.path_parameters.at(0), r);
}

http::awaitable_response show_problem(const state_services&, http::request r) {
    co_return http::explain_problem(r.path_parameters.at(0), r.header_list("accept"));
}

}  // namespace fencegate::api
