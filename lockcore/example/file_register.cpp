#include "file_register.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace example {
namespace {

/// Tokens are below 2^53, so epochs are below 2^21.
constexpr std::uint64_t epochs_end = std::uint64_t{1} << 21;

/// An open file or folder. Every failure throws a std::system_error with its path.
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

/// The record of a node: its latest epoch, and the life that drew it.
struct node_entry {
    std::uint64_t epoch = 0;  ///< 0: none.
    bool synced = false;
    std::string life;
};

struct content {
    std::uint64_t epoch = 0;
    std::map<std::string, node_entry> nodes;
};

/// Reads the file: a line "epoch 7"; for each node a line "node NAME", followed by "life 7 synced LIFE" or
/// "life 7 unsynced LIFE" if it has drawn an epoch; then a line "end".
content read(const std::filesystem::path& file) {
    content found;
    std::ifstream in(file);
    if (!in) throw std::runtime_error("can't read " + file.string() + ": create an empty file for a new register");
    if (std::filesystem::file_size(file) == 0) return found;
    std::string word, name, synced;
    bool valid = in >> word >> found.epoch && word == "epoch" && found.epoch > 0 && found.epoch < epochs_end;
    for (word.clear(); valid && (in >> word) && word != "end";) {
        if (word == "node") {
            valid = in.get() == ' ' && std::getline(in, name);
            found.nodes[name];
        } else {
            node_entry& node = found.nodes[name];
            valid = word == "life" && !name.empty() && in >> node.epoch >> synced && in.get() == ' ' &&
                    std::getline(in, node.life) && (synced == "synced" || synced == "unsynced");
            node.synced = synced == "synced";
        }
    }
    valid = valid && word == "end";
    if (!valid) throw std::runtime_error(file.string() + " is damaged, or it is not a register of epochs");
    return found;
}

std::string format(const content& c) {
    std::ostringstream out;
    out << "epoch " << c.epoch << '\n';
    for (const auto& [name, node] : c.nodes) {
        out << "node " << name << '\n';
        if (!node.life.empty())
            out << "life " << node.epoch << (node.synced ? " synced " : " unsynced ") << node.life << '\n';
    }
    out << "end\n";
    return out.str();
}

/// Calls `change` with the content of the file, and writes the result durably if `change` returns true. Calls are
/// serialized by a lock on the folder.
template <class Change>
void change_content(const std::filesystem::path& file, Change change) {
    const descriptor folder(file.parent_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    folder.lock();  // released when `folder` is closed
    content c = read(file);
    if (!change(c)) return;

    std::filesystem::path next = file;
    next += ".new";
    {
        const descriptor out(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
        out.write(format(c));
        out.sync();
    }
    std::filesystem::rename(next, file);
    folder.sync();
}

lockcore::drawn_epoch draw_from(const std::filesystem::path& file, const lockcore::epoch_request& request) {
    lockcore::drawn_epoch drawn;
    change_content(file, [&](content& c) {
        const auto known = c.nodes.find(request.node_name);
        if (!request.life.empty() && known != c.nodes.end() && known->second.life == request.life) {
            node_entry& node = known->second;
            drawn = {lockcore::epoch{node.epoch}, true};
            return std::exchange(node.synced, node.synced && request.synced) != node.synced;
        }
        c.epoch = std::max(c.epoch, value_of(request.highest_observed)) + 1;
        if (c.epoch >= epochs_end)
            throw std::runtime_error("epoch " + std::to_string(c.epoch) + " is above the largest possible one");
        drawn.value = lockcore::epoch{c.epoch};
        if (!request.life.empty()) c.nodes[request.node_name] = {c.epoch, request.synced, request.life};
        return true;
    });
    return drawn;
}

/// Returns the result of `work`, or errc::no_quorum with the text of its exception.
template <class T, class Work>
lockcore::result<T> attempt(Work work) {
    try {
        return work();
    } catch (const std::exception& e) {
        lockcore::failure f;
        f.code = lockcore::errc::no_quorum;
        f.detail = e.what();
        return f;
    }
}

}  // namespace

file_register::file_register(std::filesystem::path file) : file_(std::filesystem::absolute(file)) {
    const descriptor folder(file_.parent_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)read(file_);
    file_ = std::filesystem::canonical(file_);  // rename would replace a symbolic link, and not its target
}

boost::asio::awaitable<lockcore::result<lockcore::node_record>> file_register::find(std::string node_name) {
    co_return attempt<lockcore::node_record>([&] {
        const content c = read(file_);
        const auto found = c.nodes.find(node_name);
        lockcore::node_record record;
        if (found != c.nodes.end())
            record = {true, lockcore::epoch{found->second.epoch}, found->second.life, found->second.synced};
        return record;
    });
}

boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> file_register::draw(lockcore::epoch_request request) {
    co_return attempt<lockcore::drawn_epoch>([&] { return draw_from(file_, request); });
}

boost::asio::awaitable<lockcore::result<void>> file_register::note_unsynced(std::string node_name) {
    co_return attempt<void>([&] {
        change_content(file_, [&](content& c) {
            const auto found = c.nodes.find(node_name);
            return found != c.nodes.end() && std::exchange(found->second.synced, false);
        });
        return lockcore::result<void>();
    });
}

}  // namespace example
