#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

/// Bytes that a file with a secret may hold.
inline constexpr std::size_t secret_max_bytes = 4096;

/// The text of a small file without the line end at its end; or why not, in `fault`. The text never shows in `fault`.
std::optional<std::string> read_secret(const std::filesystem::path& file, std::string& fault);

/// SHA-256 as 64 lower-case hexadecimal digits. API keys are long random strings, so that a plain hash keeps them safe.
std::string sha256_hex(std::string_view text);

}  // namespace fencegate
