#pragma once

#include <string>
#include <vector>

namespace fencegate::http {

/// The certificate of a caller. The transport has verified it: its chain ends at a trusted authority, it is valid now, and
/// the caller has its private key.
struct client_certificate {
    std::string subject;                 ///< The subject in the text of RFC 2253: `CN=orders,O=Shop`.
    std::vector<std::string> dns_names;  ///< The DNS names of the extension subjectAltName.
    std::vector<std::string> uris;       ///< The URIs of subjectAltName, such as `spiffe://shop.example/orders`.
};

}  // namespace fencegate::http
