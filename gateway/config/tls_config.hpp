#pragma once

#include <string>

namespace fencegate {

enum class tls_version { v1_2, v1_3 };

/// The section http.tls. The texts are those of the files that it names, each of at most 64 KiB.
struct tls_config {
    std::string certificates;  ///< PEM: the gateway's certificate, then those that lead to an authority. No default.
    std::string key;           ///< PEM: the key of the first certificate, not encrypted. Never logged. No default.
    tls_version minimum_version = tls_version::v1_2;  ///< Callers with an older version are refused.
    /// PEM: the authorities whose client certificates are accepted. Empty: callers are not asked for a certificate.
    std::string client_authorities;
    bool client_certificates_required = false;  ///< Whether a caller without a client certificate is refused.
    friend bool operator==(const tls_config&, const tls_config&) = default;
};

}  // namespace fencegate
