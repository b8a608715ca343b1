#include <redis/credentials.hpp>

#include <redis/resp_command.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockcore::redis {
namespace {

constexpr std::size_t password_max_bytes = 4096;

std::optional<std::string> read_password(const std::string& file, std::string& fault) {
    const auto failed = [&](const std::string& why) {
        fault = "cannot read " + file + ": " + why;
        return std::nullopt;
    };
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return failed(std::strerror(errno));
    struct stat found {};
    const bool is_regular = ::fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);
    // Not by a stream, whose buffer would keep the secret.
    std::string text(password_max_bytes + 1, '\0');
    const ssize_t length = is_regular ? ::read(descriptor, text.data(), text.size()) : 0;
    const int error = errno;
    ::close(descriptor);
    if (!is_regular) return failed("it is not a regular file");
    if (length < 0) return failed(std::strerror(error));
    text.resize(static_cast<std::size_t>(length));
    if (text.size() > password_max_bytes) return failed("it is longer than 4096 bytes");
    while (text.ends_with('\n') || text.ends_with('\r'))
        text.pop_back();
    if (text.empty()) return failed("it is empty");
    return text;
}

}  // namespace

std::optional<std::string> format_auth(const node_address& address, std::string& fault) {
    std::optional<std::string> password = address.password;
    if (!address.password_file.empty()) password = read_password(address.password_file, fault);
    if (!password || password->empty()) return std::nullopt;
    resp_command auth;
    auth.arg("AUTH");
    if (!address.username.empty()) auth.arg(address.username);
    return auth.arg(*password).finish();
}

}  // namespace lockcore::redis
