#pragma once

#include <gateway/devstack/options.hpp>
#include <gateway/devstack/ports.hpp>
#include <gateway/devstack/postgres.hpp>
#include <gateway/devstack/process.hpp>
#include <gateway/devstack/supervisor.hpp>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::devstack {

/// Makes DIR and gives its full name. Throws stack_error.
std::filesystem::path prepare_folder(const std::filesystem::path& dir);

/// What the stack consists of, and where its parts are: ports, files, keys, and the programs to run.
class stack {
  public:
    /// Chooses ports and writes every file that a part needs. Throws stack_error. `folder` as from prepare_folder, and
    /// locked.
    stack(const std::filesystem::path& folder, const options& wanted);

    std::vector<program> nodes() const;
    const postgres& database() const { return *database_; }
    /// Writes the gateways' configurations.
    std::vector<program> gateways() const;

    /// Whether every gateway says that it is ready.
    bool is_ready() const;

    /// DIR/stack.json. A part that is down keeps its last pid until its next one answers.
    void write_facts(const supervisor& running) const;
    void forget_facts() const;

    /// For the person who started it.
    std::string summary(double seconds) const;

  private:
    void check_wishes() const;
    void choose_ports();
    void make_keys();
    std::string gateway_config(std::size_t index) const;

    std::filesystem::path dir_;
    options wanted_;
    std::vector<std::uint16_t> node_ports_;
    std::vector<endpoint> endpoints_;              ///< Of the gateways.
    std::map<std::string, std::string> api_keys_;  ///< By principal; empty without --auth.
    std::optional<postgres> database_;
};

}  // namespace fencegate::devstack
