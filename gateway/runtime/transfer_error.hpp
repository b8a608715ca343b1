#pragma once

#include <string>

namespace fencegate::runtime {

/// Returns libcurl's text for a failed transfer without the URL of a proxy, which may contain a password.
inline std::string hide_proxy(std::string text) {
    if (text.starts_with("Unsupported proxy")) return "http_proxy, https_proxy or all_proxy is not the URL of a proxy";
    return text;
}

}  // namespace fencegate::runtime
