#pragma once

#include <gateway/devstack/ports.hpp>
#include <gateway/devstack/postgres.hpp>
#include <gateway/devstack/process.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::devstack {

inline constexpr unsigned gateways_max = 16;

struct options {
    std::filesystem::path data_dir = "var/dev";  ///< Contains all files of the stack. Created if missing.
    /// The first gateway's ADDR:PORT; port 0: any free one, kept between starts.
    std::string http = "127.0.0.1:8080";
    std::string postgres = "127.0.0.1:0";  ///< PostgreSQL's ADDR:PORT, as `http`.
    unsigned nodes = 5;     ///< Redis nodes: odd, 1 to lockcore::nodes_max. Fixed by the first start on `data_dir`.
    bool auth = false;      ///< API keys admin, orders and auditor; else every caller is `dev`.
    unsigned gateways = 1;  ///< 1 to gateways_max.
    std::string appendfsync = "always";  ///< Redis' always, everysec or no. With always a restarted node votes at once.
};

/// Runs Redis nodes, a PostgreSQL server and gateways of its own until SIGTERM or SIGINT, and restarts processes that
/// exit; then stops all of them. Once the stack is ready, and after each restart, writes the addresses and process ids
/// to DIR/stack.json.
///
/// Out:     an exit code of gateway/domain/exit_code.hpp.
/// Threads: the process must have only one: children are killed when the thread that started them ends.
int run(const options& chosen);

/// Creates DIR and returns its absolute path. Throws stack_error.
std::filesystem::path prepare_folder(const std::filesystem::path& dir);

/// The parts of the stack: ports, files, keys, and the programs to run.
class stack {
  public:
    /// Chooses ports and writes every file that a program needs.
    ///
    /// In:     `folder` comes from prepare_folder and is locked.
    /// Errors: throws stack_error.
    stack(const std::filesystem::path& folder, const options& chosen);

    std::vector<program> nodes() const;
    const postgres& database() const { return *database_; }
    /// Writes the gateways' configurations and returns the programs.
    std::vector<program> gateways() const;

    /// Returns whether every gateway reports that it is ready.
    bool is_ready() const;

    /// Writes DIR/stack.json. A program that is down keeps its last pid until its next process accepts connections.
    void write_stack_file(const supervisor& running) const;
    void remove_stack_file() const;

    /// Returns a summary for the user who started the stack.
    std::string summary(double seconds) const;

  private:
    void check_options() const;
    void choose_ports();
    void make_keys();
    std::string gateway_config(std::size_t index) const;

    std::filesystem::path dir_;
    options options_;
    std::optional<port_registry> ports_;
    std::vector<std::uint16_t> node_ports_;
    std::vector<endpoint> endpoints_;              ///< Endpoints of the gateways.
    std::map<std::string, std::string> api_keys_;  ///< By principal; empty without --auth.
    std::optional<postgres> database_;
};

}  // namespace fencegate::devstack
