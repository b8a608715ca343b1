#pragma once

#include <lockcore/ports.hpp>

#include <filesystem>

namespace example {

/// The register of epochs in a file, for programs on one machine.
///
/// A draw writes a new file, syncs it (fsync), renames it over the old one, and syncs the folder before it returns.
/// After a crash at any moment there is either the old file or the new one. A lock on the folder (flock) serializes the
/// draws of all processes and threads.
///
/// The file has the latest epoch, and for each node the life that drew last, its epoch, and whether that life synced
/// every write. An empty file is a new register. A missing or damaged file is an error, for a register that starts
/// again at 1 would cause tokens to be granted twice.
///
/// It does not protect against:
/// - A file that is restored from a backup, or lost and created again: it lacks the epochs drawn since. Tokens still
///   grow if the nodes have their epochs, and are granted twice if the nodes have lost their data too.
/// - Programs on several machines: each would have its own register, and two registers draw the same epochs.
/// - A network file system: flock may be local to each machine, and other machines may see a rename late.
/// - A disk that reports a sync that it has not done.
///
/// Threads: safe. A draw blocks the thread for two fsync calls.
class file_register final : public lockcore::epoch_register {
  public:
    /// Errors: std::runtime_error if the file or its folder can't be read.
    explicit file_register(std::filesystem::path file);

    // Errors: errc::no_quorum, with the name of the file and its fault.
    boost::asio::awaitable<lockcore::result<lockcore::node_record>> find(std::string node_name) override;
    boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> draw(lockcore::epoch_request request) override;
    boost::asio::awaitable<lockcore::result<void>> note_unsynced(std::string node_name) override;

  private:
    std::filesystem::path file_;
};

}  // namespace example
