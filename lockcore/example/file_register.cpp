#include "file_register.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace example {
namespace {

/// Tokens stay below 2^53, so epochs below 2^21.
constexpr std::uint64_t epochs_end = std::uint64_t{1} << 21;

/// An open file or folder. What can't be done throws and names it.
class descriptor {
  public:
    descriptor(const std::filesystem::path& path, int flags) : path_(path), fd_(::open(path.c_str(), flags, 0600)) {
        if (fd_ < 0) fail("can't open ");
    }
    ~descriptor() { ::close(fd_); }
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;

    void lock() const {
        while (::flock(fd_, LOCK_EX) != 0) {
            if (errno != EINTR) fail("can't lock ");
        }
    }
    void write(std::string_view text) const {
        while (!text.empty()) {
            const ssize_t written = ::write(fd_, text.data(), text.size());
            if (written < 0 && errno != EINTR) fail("can't write ");
            if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    void sync() const {
        if (::fsync(fd_) != 0) fail("can't sync ");
    }

  private:
    [[noreturn]] void fail(const char* what) const {
        throw std::system_error(errno, std::generic_category(), what + path_.string());
    }
    std::filesystem::path path_;
    int fd_;
};

struct content {
    std::uint64_t epoch = 0;
    std::set<std::string> nodes;
};

/// "epoch 7", then a line "node NAME" for each node, then "end".
content read(const std::filesystem::path& file) {
    content found;
    std::ifstream in(file);
    if (!in)
        throw std::runtime_error("can't read " + file.string() + ": a new register is an empty file, made by hand");
    if (std::filesystem::file_size(file) == 0) return found;
    std::string word, name;
    bool whole = in >> word >> found.epoch && word == "epoch" && found.epoch > 0 && found.epoch < epochs_end;
    while (whole && (in >> word) && word == "node" && in.get() == ' ' && std::getline(in, name))
        found.nodes.insert(name);
    whole = whole && word == "end";
    if (!whole) throw std::runtime_error(file.string() + " is damaged, or no register of epochs");
    return found;
}

std::string text_of(const content& c) {
    std::ostringstream out;
    out << "epoch " << c.epoch << '\n';
    for (const std::string& name : c.nodes)
        out << "node " << name << '\n';
    out << "end\n";
    return out.str();
}

lockcore::drawn_epoch draw_from(const std::filesystem::path& file, const std::string& node, lockcore::epoch seen) {
    const descriptor folder(file.parent_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    folder.lock();  // until it is closed
    content c = read(file);
    c.epoch = std::max(c.epoch, value_of(seen)) + 1;
    if (c.epoch >= epochs_end) throw std::runtime_error("epoch " + std::to_string(c.epoch) + " is past the last one");
    lockcore::drawn_epoch drawn;
    drawn.value = lockcore::epoch{c.epoch};
    drawn.first_admission = c.nodes.insert(node).second;

    std::filesystem::path next = file;
    next += ".new";
    {
        const descriptor out(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
        out.write(text_of(c));
        out.sync();
    }
    std::filesystem::rename(next, file);
    folder.sync();
    return drawn;
}

}  // namespace

file_register::file_register(std::filesystem::path file) : file_(std::filesystem::absolute(file)) {
    const descriptor folder(file_.parent_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)read(file_);
    file_ = std::filesystem::canonical(file_);  // rename replaces a symbolic link, not what it points to
}

boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> file_register::draw(std::string node_name,
                                                                                    lockcore::epoch seen) {
    try {
        co_return draw_from(file_, node_name, seen);
    } catch (const std::exception& e) {
        lockcore::failure f;
        f.code = lockcore::errc::no_quorum;
        f.detail = e.what();
        co_return f;
    }
}

}  // namespace example
