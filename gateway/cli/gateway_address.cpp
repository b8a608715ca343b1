#include <gateway/cli/gateway_address.hpp>

#include <gateway/config/authority.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

#include <stdexcept>

namespace fencegate::cli {

namespace urls = boost::urls;

gateway_address parse_address(const std::string& url) {
    const auto parsed = urls::parse_uri(url);
    if (!parsed) throw std::invalid_argument("is not a URL such as http://127.0.0.1:8080");
    if (parsed->scheme() != "http" && parsed->scheme() != "https")
        throw std::invalid_argument("must begin with http:// or https://");
    if (parsed->has_userinfo() || parsed->has_query() || parsed->has_fragment() || parsed->host_address().empty())
        throw std::invalid_argument("must be http[s]://HOST[:PORT][/BASE], without user, query or fragment");
    gateway_address out;
    out.tls = parsed->scheme() == "https";
    out.host = parsed->host_address();
    out.base = std::string(parsed->encoded_path());
    while (out.base.ends_with('/'))
        out.base.pop_back();
    out.authority = std::string(parsed->encoded_host_and_port());
    return out;
}

bool gateway_address::is_loopback() const {
    return is_loopback_host(host);
}

std::string make_target(std::string_view path, const std::vector<std::pair<std::string, std::string>>& parameters) {
    std::string out(path);
    char separator = '?';
    for (const auto& [name, value] : parameters) {
        if (value.empty()) continue;
        out += separator;
        out += name;
        out += '=';
        out += runtime::percent_encode(value);
        separator = '&';
    }
    return out;
}

}  // namespace fencegate::cli
