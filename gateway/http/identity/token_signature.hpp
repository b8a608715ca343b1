#pragma once

#include <gateway/config/token_keys.hpp>

#include <string_view>

namespace fencegate::http {

/// Returns whether `signature` is that of `text` by `key` (RFC 7518, 3.3 and 3.4; RFC 8037, 3.1).
///
/// Threads: any.
bool verify_signature(const token_key& key, std::string_view text, std::string_view signature);

}  // namespace fencegate::http
