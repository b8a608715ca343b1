#include <gateway/devstack/files.hpp>

#include <gateway/devstack/process.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/encoding.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace fencegate::devstack {
namespace {

[[noreturn]] void fail(const std::filesystem::path& what) {
    throw stack_error(what.string() + ": " + std::strerror(errno));
}

}  // namespace

void write_atomically(const std::filesystem::path& file, const std::string& text, mode_t mode) {
    const std::string beside = file.string() + ".new";
    unlink(beside.c_str());
    const int out = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0) fail(beside);
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(out, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            close(out);
            fail(beside);
        }
        done += static_cast<std::size_t>(written);
    }
    const bool good = fchmod(out, mode) == 0;
    close(out);
    if (!good || rename(beside.c_str(), file.c_str()) != 0) fail(file);
}

std::string read_all(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

void own_folder(const std::filesystem::path& folder, mode_t mode, uid_t owner, gid_t group) {
    const bool made = mkdir(folder.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) fail(folder);
    struct stat now {};
    if (lstat(folder.c_str(), &now) != 0) fail(folder);
    if (!S_ISDIR(now.st_mode)) throw stack_error(folder.string() + " is not a folder");
    // A folder that someone else made, in /tmp above all, is not ours to fill.
    if (!made && now.st_uid != owner && now.st_uid != geteuid()) {
        throw stack_error(folder.string() + " belongs to user " + std::to_string(now.st_uid) +
                          "; choose another --data-dir");
    }
    if (now.st_uid != owner && chown(folder.c_str(), owner, group) != 0) fail(folder);
    if (chmod(folder.c_str(), mode) != 0) fail(folder);
}

std::string random_secret() {
    std::array<std::byte, 32> bits;
    runtime::random_bytes(bits);
    return lockcore::to_hex(bits);
}

std::string kept_secret(const std::filesystem::path& file) {
    std::string text = read_all(file);
    while (text.ends_with('\n'))
        text.pop_back();
    if (!text.empty()) return text;
    text = random_secret();
    write_atomically(file, text + "\n", 0600);
    return text;
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
