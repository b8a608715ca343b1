#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

/// Maximum size in bytes of a file with a secret.
inline constexpr std::size_t secret_max_bytes = 4096;

/// Reads the text of a small file without its last line end.
///
/// Out: empty if it failed; `fault` then says why, without the text.
std::optional<std::string> read_secret(const std::filesystem::path& file, std::string& fault);

/// Returns the SHA-256 as 64 lower-case hexadecimal digits. API keys are long random strings, so a plain hash protects
/// them.
std::string sha256_hex(std::string_view text);

}  // namespace fencegate
