#pragma once

#include <sys/types.h>
#include <filesystem>
#include <optional>
#include <string>

namespace fencegate::devstack {

/// Writes a new file and renames it to `file`, so that a reader sees the complete old or new text. Throws stack_error.
void write_atomically(const std::filesystem::path& file, const std::string& text, mode_t mode);

/// Returns the text of a file; empty if the file does not exist.
std::string read_file(const std::filesystem::path& file);

/// Creates a folder if it is missing, and gives it this mode and owner. Throws stack_error, also if it is a symbolic
/// link or belongs to another user.
void ensure_folder(const std::filesystem::path& folder, mode_t mode, uid_t owner, gid_t group);

/// Returns 256 random bits as 64 hexadecimal digits.
std::string random_secret();

/// Returns the secret of FENCEGATE_DEV_SECRET, of which keys and passwords are made, so that tests know them; empty if
/// the variable is not set. Throws stack_error.
std::optional<std::string> secret_of_environment();

/// Returns the key or password for callers in a file: the file's name without its ending, `-` and the secret of the
/// environment; without one, what load_or_create_secret returns. Throws stack_error.
std::string load_or_create_password(const std::filesystem::path& file);

/// Returns the secret in a file. Creates the file (mode 0600) with a new secret if it is missing. Throws stack_error.
std::string load_or_create_secret(const std::filesystem::path& file);

/// Holds a lock on DIR/lock for its lifetime; the kernel releases the lock when the process ends, however it ends.
class folder_lock {
  public:
    /// Throws stack_error if another process holds the lock.
    explicit folder_lock(const std::filesystem::path& folder);
    ~folder_lock();
    folder_lock(const folder_lock&) = delete;
    folder_lock& operator=(const folder_lock&) = delete;

  private:
    int file_;
};

}  // namespace fencegate::devstack
