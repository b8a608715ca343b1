#include <gateway/devstack/files.hpp>

#include <gateway/devstack/process.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/encoding.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

namespace fencegate::devstack {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file) {
    throw stack_error(file.string() + ": " + std::strerror(errno));
}

}  // namespace

void write_atomically(const std::filesystem::path& file, const std::string& text, mode_t mode) {
    const std::string temporary = file.string() + ".new";
    unlink(temporary.c_str());
    const int out = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0) fail(temporary);
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(out, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            close(out);
            fail(temporary);
        }
        done += static_cast<std::size_t>(written);
    }
    const bool good = fchmod(out, mode) == 0;
    close(out);
    if (!good || rename(temporary.c_str(), file.c_str()) != 0) fail(file);
}

std::string read_file(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

void ensure_folder(const std::filesystem::path& folder, mode_t mode, uid_t owner, gid_t group) {
    const bool created = mkdir(folder.c_str(), 0700) == 0;
    if (!created && errno != EEXIST) fail(folder);
    struct stat status {};
    if (lstat(folder.c_str(), &status) != 0) fail(folder);
    if (!S_ISDIR(status.st_mode)) throw stack_error(folder.string() + " is not a folder");
    // Another user may have created the folder, above all in /tmp; it must not be used.
    if (!created && status.st_uid != owner && status.st_uid != geteuid()) {
        throw stack_error(folder.string() + " belongs to user " + std::to_string(status.st_uid) +
                          "; choose another --data-dir");
    }
    if (status.st_uid != owner && chown(folder.c_str(), owner, group) != 0) fail(folder);
    if (chmod(folder.c_str(), mode) != 0) fail(folder);
}

std::string random_secret() {
    std::array<std::byte, 32> bits;
    runtime::random_bytes(bits);
    return lockcore::to_hex(bits);
}

std::string load_or_create_secret(const std::filesystem::path& file) {
    std::string text = read_file(file);
    while (text.ends_with('\n'))
        text.pop_back();
    if (!text.empty()) return text;
    text = random_secret();
    write_atomically(file, text + "\n", 0600);
    return text;
}

std::optional<std::string> secret_of_environment() {
    const char* secret = std::getenv("FENCEGATE_DEV_SECRET");
    if (secret == nullptr) return std::nullopt;
    const std::string_view text = secret;
    // Without characters that URLs, SQL or headers would need escaped.
    if (text.size() < 8 || text.size() > 64 ||
        !std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c); }))
        throw stack_error("FENCEGATE_DEV_SECRET has to be 8 to 64 ASCII letters and digits");
    return std::string(text);
}

std::string load_or_create_password(const std::filesystem::path& file) {
    const auto secret = secret_of_environment();
    if (!secret) return load_or_create_secret(file);
    std::string password = file.stem().string() + "-" + *secret;
    write_atomically(file, password + "\n", 0600);
    return password;
}

folder_lock::folder_lock(const std::filesystem::path& folder)
    : file_(open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (file_ < 0) fail(folder / "lock");
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
        close(file_);
        throw stack_error("another fencegate dev runs on " + folder.string() +
                          "; stop it, or choose another --data-dir");
    }
}

folder_lock::~folder_lock() {
    close(file_);
}

}  // namespace fencegate::devstack
