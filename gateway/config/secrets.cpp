#include <gateway/config/secrets.hpp>

#include <lockcore/encoding.hpp>

#include <openssl/sha.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

namespace fencegate {

std::optional<std::string> read_secret(const std::filesystem::path& file, std::string& fault) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        fault = file.string() + " is a folder";
        return std::nullopt;
    }
    errno = 0;
    std::ifstream input(file, std::ios::binary);
    if (!input) {
        fault = "cannot read " + file.string() + ": " + std::strerror(errno == 0 ? EIO : errno);
        return std::nullopt;
    }
    std::string text(secret_max_bytes + 1, '\0');
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(input.gcount()));
    if (text.size() > secret_max_bytes) {
        fault = file.string() + " is longer than " + std::to_string(secret_max_bytes) + " bytes";
        return std::nullopt;
    }
    while (text.ends_with('\n') || text.ends_with('\r'))
        text.pop_back();
    if (text.empty()) {
        fault = file.string() + " is empty";
        return std::nullopt;
    }
    return text;
}

std::string sha256_hex(std::string_view text) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
    return lockcore::to_hex(std::as_bytes(std::span(digest)));
}

}  // namespace fencegate
