#pragma once

#include <lockcore/config.hpp>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fencegate::testing {

/// Real redis-server processes on free loopback ports, below a folder of their own. All of it ends with the object.
class redis_nodes {
  public:
    explicit redis_nodes(std::size_t count);
    ~redis_nodes();
    redis_nodes(const redis_nodes&) = delete;
    redis_nodes& operator=(const redis_nodes&) = delete;

    /// A configuration that names them all.
    lockcore::config config() const;
    std::size_t size() const { return nodes_.size(); }

    /// kill -9; its memory is gone.
    void kill(std::size_t node);
    /// SIGSTOP: it keeps its connections and answers nothing.
    void pause(std::size_t node);
    void resume(std::size_t node);
    /// A new process on the same port.
    void start(std::size_t node);
    /// Any command in words; the first line of the answer.
    std::string command(std::size_t node, const std::vector<std::string>& words) const;
    /// Keys of leases on one node.
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
