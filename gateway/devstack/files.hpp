#pragma once

#include <sys/types.h>
#include <filesystem>
#include <string>

namespace fencegate::devstack {

/// Writes a file anew beside its place and renames it there: a reader sees the old or the new one, whole. Throws
/// stack_error.
void write_atomically(const std::filesystem::path& file, const std::string& text, mode_t mode);

/// The text of a file; empty if there is none.
std::string read_all(const std::filesystem::path& file);

/// A folder with exactly this mode and owner, made if missing. Throws stack_error; also where it is a link or belongs
/// to someone else.
void own_folder(const std::filesystem::path& folder, mode_t mode, uid_t owner, gid_t group);

/// 256 random bits as 64 hexadecimal digits.
std::string random_secret();

/// The text of a secret's file, made with a new secret (mode 0600) where there is none. Throws stack_error.
std::string kept_secret(const std::filesystem::path& file);

/// Holds a lock on DIR/lock as long as it lives; the kernel lets go of it when the process ends, however it ends.
class folder_lock {
  public:
    /// Throws stack_error where another process holds it.
    explicit folder_lock(const std::filesystem::path& folder);
    ~folder_lock();
    folder_lock(const folder_lock&) = delete;
    folder_lock& operator=(const folder_lock&) = delete;

  private:
    int file_;
};

}  // namespace fencegate::devstack
