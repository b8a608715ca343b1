#include <gateway/config/secrets.hpp>

#include <lockcore/encoding.hpp>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>

namespace fencegate {
namespace {

/// How long a pipe is waited for.
constexpr int pipe_wait_ms = 2'000;

}  // namespace

std::optional<std::string> read_text_file(const std::filesystem::path& file, std::size_t bytes_max,
                                          std::string& fault) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        fault = file.string() + " is a folder";
        return std::nullopt;
    }
    // Not by a stream, whose buffer would keep the secret. The file may be a pipe, such as <(command) of a shell, and a
    // pipe without a writer must not block.
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    std::string text(bytes_max + 1, '\0');
    std::size_t length = 0;
    ssize_t count = descriptor < 0 ? -1 : 1;
    while (count > 0 && length < text.size()) {
        pollfd readable{descriptor, POLLIN, 0};
        if (::poll(&readable, 1, pipe_wait_ms) == 0) {
            errno = ETIMEDOUT;
            count = -1;
            break;
        }
        count = ::read(descriptor, text.data() + length, text.size() - length);
        if (count > 0) length += static_cast<std::size_t>(count);
    }
    if (count < 0)
        fault = "cannot read " + file.string() + ": " +
                (errno == ETIMEDOUT ? "it is a pipe, and nothing is written into it" : std::strerror(errno));
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

std::optional<std::string> find_permissions_fault(const std::filesystem::path& file) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0 || !S_ISREG(found.st_mode) || (found.st_mode & S_IRWXO) == 0)
        return std::nullopt;
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", found.st_mode & 07777U);
    return file.string() + " has permissions " + mode +
           ", with access for every user of this machine; they should be " + "0640 or less (chmod o= " + file.string() +
           ")";
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
