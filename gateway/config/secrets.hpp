#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate {

/// Maximum size in bytes of a file with a secret.
inline constexpr std::size_t secret_max_bytes = 4096;

/// Reads a small file.
///
/// Out: empty if it failed, or if the file is longer than `bytes_max`; `fault` then says why, without the text.
std::optional<std::string> read_text_file(const std::filesystem::path& file, std::size_t bytes_max, std::string& fault);

/// Reads the text of a file of at most secret_max_bytes without its last line end.
///
/// Out: empty if it failed or the text is empty; `fault` then says why, without the text.
std::optional<std::string> read_secret(const std::filesystem::path& file, std::string& fault);

/// Returns that users other than its owner and its group may access a file, with its mode and what to do; empty if they
/// may not, or if it is no regular file.
std::optional<std::string> find_permissions_fault(const std::filesystem::path& file);

/// Returns the value of an environment variable, and overwrites it in the environment of the process, which
/// /proc/PID/environ shows and child processes inherit. A further call returns the value again, as long as the variable
/// is set.
///
/// Out:     empty if the variable is not set, or is empty and never had a value.
/// Threads: safe, if no other code changes or reads the environment meanwhile.
std::string take_secret_variable(const std::string& name);

/// Overwrites the characters, so that the secret does not stay in memory that is reused, and empties the text.
void overwrite_secret(std::string& secret);

/// Returns the SHA-256 as 64 lower-case hexadecimal digits. API keys are long random strings, so a plain hash protects
/// them.
std::string sha256_hex(std::string_view text);

}  // namespace fencegate
