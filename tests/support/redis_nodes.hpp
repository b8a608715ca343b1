#pragma once

#include <lockcore/config.hpp>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fencegate::testing {

/// Starts real redis-server processes on free loopback ports with a temporary folder. The destructor ends the processes
/// and deletes the folder.
class redis_nodes {
  public:
    explicit redis_nodes(std::size_t count);
    ~redis_nodes();
    redis_nodes(const redis_nodes&) = delete;
    redis_nodes& operator=(const redis_nodes&) = delete;

    /// Returns a configuration with all of these nodes.
    lockcore::config config() const;
    std::size_t size() const { return nodes_.size(); }

    /// Ends the process with SIGKILL; its data is lost.
    void kill(std::size_t node);
    /// Stops the process with SIGSTOP: its connections stay open and it does not answer.
    void pause(std::size_t node);
    void resume(std::size_t node);
    /// Starts a new process on the same port.
    void start(std::size_t node);
    /// Runs any Redis command. Out: the answer, as far as one read returns it.
    std::string command(std::size_t node, const std::vector<std::string>& words) const;
    /// Returns the number of lease keys on a node.
    std::size_t lease_keys(std::size_t node) const;

  private:
    struct process {
        pid_t pid = 0;
        std::uint16_t port = 0;
    };
    std::filesystem::path folder_;
    std::vector<process> nodes_;
};

}  // namespace fencegate::testing
