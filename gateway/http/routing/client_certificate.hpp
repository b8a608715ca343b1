#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace fencegate::http {

/// The certificate of a caller. The transport has verified it when the connection was made: its chain ended at a trusted
/// authority, it was valid, and the caller had its private key.
struct client_certificate {
    std::string subject;                 ///< The subject in the text of RFC 2253: `CN=orders,O=Shop`.
    std::vector<std::string> dns_names;  ///< The DNS names of the extension subjectAltName.
    std::vector<std::string> uris;       ///< The URIs of subjectAltName, such as `spiffe://shop.example/orders`.
    std::chrono::system_clock::time_point valid_until = std::chrono::system_clock::time_point::max();
};

}  // namespace fencegate::http
