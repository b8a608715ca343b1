#pragma once

#include <gateway/config/auth.hpp>

#include <optional>
#include <stop_token>
#include <string>

namespace fencegate::http {

/// Requests the key set of `jwks_url`. Follows no redirect.
///
/// Out:     its text; empty if it failed, and `fault` says why.
/// Limits:  token_key_set::text_bytes_max.
/// Timeout: 10 s in all. Cancel: by `stop`, within about a second.
/// Threads: blocks its thread.
std::optional<std::string> fetch_key_set(const jwt_config& cfg, const std::stop_token& stop, std::string& fault);

}  // namespace fencegate::http
