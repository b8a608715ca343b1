#include <gateway/config/secrets.hpp>

#include <lockcore/encoding.hpp>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>

namespace fencegate {

std::optional<std::string> read_text_file(const std::filesystem::path& file, std::size_t bytes_max,
                                          std::string& fault) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        fault = file.string() + " is a folder";
        return std::nullopt;
    }
    // Not by a stream, whose buffer would keep the secret.
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    std::string text(bytes_max + 1, '\0');
    std::size_t length = 0;
    ssize_t count = descriptor < 0 ? -1 : 1;
    while (count > 0 && length < text.size()) {
        count = ::read(descriptor, text.data() + length, text.size() - length);
        if (count > 0) length += static_cast<std::size_t>(count);
    }
    if (count < 0) fault = "cannot read " + file.string() + ": " + std::strerror(errno);
    if (descriptor >= 0) ::close(descriptor);
    if (count < 0) return std::nullopt;
    text.resize(length);
    if (text.size() > bytes_max) {
        fault = file.string() + " is longer than " + std::to_string(bytes_max) + " bytes";
        return std::nullopt;
    }
    return text;
}

std::optional<std::string> read_secret(const std::filesystem::path& file, std::string& fault) {
    auto read = read_text_file(file, secret_max_bytes, fault);
    if (!read) return std::nullopt;
    std::string& text = *read;
    while (text.ends_with('\n') || text.ends_with('\r'))
        text.pop_back();
    if (text.empty()) {
        fault = file.string() + " is empty";
        return std::nullopt;
    }
    return read;
}

std::string take_secret_variable(const std::string& name) {
    static std::mutex mutex;
    static std::map<std::string, std::string> taken;
    const std::lock_guard hold(mutex);
    char* value = std::getenv(name.c_str());
    if (value == nullptr) return {};
    if (*value != '\0') {
        std::string& kept = taken[name];
        overwrite_secret(kept);
        kept = value;
        OPENSSL_cleanse(value, kept.size());
    }
    return taken[name];
}

void overwrite_secret(std::string& secret) {
    OPENSSL_cleanse(secret.data(), secret.size());
    secret.clear();
}

std::string sha256_hex(std::string_view text) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
    return lockcore::to_hex(std::as_bytes(std::span(digest)));
}

}  // namespace fencegate
