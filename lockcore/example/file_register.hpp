#pragma once

#include <lockcore/ports.hpp>

#include <filesystem>

namespace example {

/// The register of epochs in a file: for programs on one machine that lose their leases when they lose that machine.
///
/// A draw writes a new file beside the old one, brings it to the disk (fsync), gives it the old one's name (rename) and
/// brings the folder to the disk; only then does it answer. A crash at any moment leaves the old file or the new one,
/// whole. Draws of all processes and threads take turns by a lock on the folder (flock).
///
/// The file holds the epoch, and of each node that ever drew one the name, the life for which it drew last, and whether
/// that synced every write. An empty file is a new register; a missing or
/// damaged one is an error, for a register that begins again at 1 gives tokens out twice.
///
/// Does not protect against:
/// - The file, or the whole disk, restored from a backup, or lost and made anew: it then forgets what was drawn. Tokens
///   still grow where nodes remember their epochs, and are given out twice where they forgot too.
/// - Programs on several machines: each would have a register of its own, and two registers draw the same epochs.
/// - A network file system: flock may be local to each machine, and a rename may be seen late by the others.
/// - A disk that says it has written and has not.
///
/// Threads: safe. A draw blocks the thread for as long as two fsyncs take.
class file_register final : public lockcore::epoch_register {
  public:
    /// Throws std::runtime_error if the file or its folder can't be read.
    explicit file_register(std::filesystem::path file);

    // Errors of each: errc::no_quorum, with the file and what is wrong with it.
    boost::asio::awaitable<lockcore::result<lockcore::node_record>> find(std::string node_name) override;
    boost::asio::awaitable<lockcore::result<lockcore::drawn_epoch>> draw(lockcore::epoch_request request) override;
    boost::asio::awaitable<lockcore::result<void>> note_unsynced(std::string node_name) override;

  private:
    std::filesystem::path file_;
};

}  // namespace example
